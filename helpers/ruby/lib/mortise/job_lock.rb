# frozen_string_literal: true

# The lock of a job, for the adapters of Sidekiq and Active Job.

require_relative "lock"

module Mortise
  # A job that is unique from being queued takes its lock under its own name, from which the worker that runs it takes it over. If the job
  # is delivered twice, only one runner gets it; the other one waits, or is busy.
  class JobLock
    LEASE = 30 # seconds after which the lock of a worker that died is free

    # key: what is locked. id: the job's. ttl: seconds for which it may wait to be run. limit: how many may run at once.
    def initialize(redis, key, id, ttl: 3600, wait: 0, limit: nil, lease: LEASE)
      @queued = Lock.new(redis, key, lease: ttl, wait: 0, renew: false)
      @running = limit ? Semaphore.new(redis, key, limit, lease: lease, wait: wait) : Lock.new(redis, key, lease: lease, wait: wait)
      @owner, @limit = "job:#{id}", limit
    end

    # Whether the job may be queued: nobody else with this key waits or runs. The same job may ask again.
    def queue
      !@queued.acquire(owner: @owner).nil?
    end

    # Gives back the lock of a job that was not queued after all.
    def unqueue
      @queued.take_over(@owner)&.release
    rescue Error => error
      Mortise.log(:warn, "the lock of a job that was not queued lasts until its end: #{error.message}")
    end

    # Runs the block while no other job with this key runs. Nil where one does, for longer than `wait`: then the block does not run.
    def run
      # A job with a limit had no lock while it was queued.
      Lock.during(-> { (@running.take_over(@owner) unless @limit) || @running.acquire }) do
        yield
        true
      end
    end
  end
end
