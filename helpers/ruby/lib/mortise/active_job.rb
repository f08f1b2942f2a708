# frozen_string_literal: true

# Active Job: unique until executed, one at a time while executed, or at most so many at a time.
#
#   class Report < ApplicationJob
#     include Mortise::ActiveJob
#     lock :until_executed                      # from being queued until it has run
#     lock :while_executing, limit: 5           # at most five at a time
#   end

require "active_job"
require "digest"
require "json"
require_relative "job_lock"

module Mortise
  module ActiveJob
    class << self
      # The server of the locks: a Redis, a RedisClient, or a ConnectionPool of these.
      attr_accessor :redis
    end

    def self.included(job)
      job.extend(Options)
    end

    module Options
      # key: a block that returns what is locked, of what Active Job can serialize: by default the job's arguments, or with a limit
      # nothing, so that the lock is the class's. ttl: seconds for
      # which a job may wait to be run. wait: seconds for which a worker waits for the lock. again: seconds after which a job whose
      # lock is held by another comes back.
      def lock(kind, ttl: 3600, wait: 0, limit: nil, again: 5, lease: JobLock::LEASE, &key)
        raise ArgumentError, "a lock is :until_executed or :while_executing, not #{kind.inspect}" unless %i[until_executed while_executing].include?(kind)
        raise ArgumentError, "a limit is for :while_executing only" if limit && kind == :until_executed

        key ||= -> { limit ? nil : arguments }
        made = lambda do |job|
          # Serialized, an object has the same name in each process; by itself its name may be an address.
          serialized = ::ActiveJob::Arguments.serialize([job.instance_exec(&key)])
          parts = ["activejob", job.class.name, Digest::SHA256.hexdigest(JSON.generate(serialized))[0, 32]]
          JobLock.new(Mortise::ActiveJob.redis, parts.join(":"), job.job_id, ttl: ttl, wait: wait, limit: limit, lease: lease)
        end
        take_when_queued(made) if kind == :until_executed
        around_perform { |job, block| job.send(:under_lock, made.call(job), again, block) }
      end

      private

      def take_when_queued(made)
        before_enqueue { throw :abort unless @lock_again || made.call(self).queue }
        around_enqueue do |job, block|
          queued = block.call && job.try(:successfully_enqueued?) != false # which Active Job 6 does not have
        ensure
          made.call(job).unqueue unless queued || @lock_again # a later callback or the adapter stopped it
        end
      end
    end

    private

    def under_lock(lock, again, block)
      return if lock.run(&block)

      @lock_again = true # it holds no lock of its own meanwhile
      self.executions -= 1 # a wait is no execution, and no failed attempt
      enqueue(wait: again)
    end
  end
end
