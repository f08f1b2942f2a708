# frozen_string_literal: true

# The lock of a job, for the adapters of Sidekiq and Active Job.

require_relative "lock"

module Mortise
  # A job that is unique from being queued takes its lock under its own name, and passes it to the worker that runs it. If the job is
  # delivered twice, only one runner gets it; the other one waits, or is busy.
  class JobLock
    LEASE = 30 # seconds after which the lock of a worker that died is free

    # key: what is locked. id: the job's. ttl: seconds for which it may wait to be run. limit: how many may run at once.
    def initialize(redis, key, id, ttl: 3600, wait: 0, limit: nil, lease: LEASE)
      @redis, @key, @owner, @ttl, @wait, @limit, @lease = redis, key.b, "job:#{id}", ttl, wait, limit, lease
    end

    # Whether the job may be queued: nobody else with this key waits or runs. The same job may ask again.
    def queue
      session = Session.of(@redis)
      settling(session, [Leaving.new(@key, @owner)]) { session.ask("LOCK.ACQUIRE", @key, @owner, (@ttl * 1000).to_i, "HOLDS", 1) }
    end

    # Runs the block while no other job with this key runs. Raises Busy where one does, for longer than `wait`.
    def run(&block)
      Lock.during(-> { passed || taken or raise Busy, "another job holds #{@key.inspect}" }, &block)
    end

    private

    # The lock that the job has held since it was queued.
    def passed
      return if @limit

      session, sent = Session.of(@redis), Mortise.now
      grant = Grant.new([@key], session.name(nil), (@lease * 1000).to_i)
      passed = settling(session, [Leaving.new(@key, @owner), *grant.leavings]) do
        reply = session.ask("LOCK.PASS", @key, @owner, grant.owner, grant.lease)
        if reply.is_a?(Integer)
          grant.granted(reply, sent)
          session.keep_renewed(grant) || session.give_up(grant)
        end
        reply
      end
      Hold.new(session, grant) if passed
    end

    # Whether the server grants what the block requests. All `leavings` go out if that is unknown, also because the thread was interrupted.
    def settling(session, leavings)
      reply = Failed.new
      session.working do
        reply = yield
      ensure
        Mortise.uninterrupted { session.later(leavings) } if reply.is_a?(Failed) && !reply.known
      end
      !Lock.said(reply).nil?
    end

    def taken
      lock = @limit ? Semaphore.new(@redis, @key, @limit, lease: @lease) : Lock.new(@redis, @key, lease: @lease)
      lock.acquire(wait: @wait)
    end
  end
end
