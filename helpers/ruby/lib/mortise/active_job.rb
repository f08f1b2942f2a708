# frozen_string_literal: true

# Active Job: unique until executed, one at a time while executed, or at most so many at a time.
#
#   class Report < ApplicationJob
#     include Mortise::ActiveJob
#     lock :until_executed                      # from being queued until it has run
#     lock :while_executing, limit: 5           # or: at most five at a time
#   end

require "active_job"
require "digest"
require "json"
require_relative "job_lock"

module Mortise
  module ActiveJob
    extend ActiveSupport::Concern

    # The server of the locks: a Redis, a RedisClient, or a ConnectionPool of these.
    singleton_class.attr_accessor :redis

    included do
      class_attribute :mortise_lock, instance_writer: false
      before_enqueue { throw :abort unless may_be_queued? }
      around_enqueue do |job, block|
        queued = block.call && job.try(:successfully_enqueued?) != false # which Active Job 6 does not have
      ensure
        job_lock.unqueue if locked_when_queued? && !queued # a later callback or the adapter stopped it
      end
      around_perform { |_job, block| mortise_lock ? under_lock(block) : block.call }
    end

    class_methods do
      # key: a block that returns what is locked, of what Active Job can serialize: by default the job's arguments, or with a limit
      # nothing, so that the lock is the class's. ttl: seconds for which a job may wait to be run. wait: seconds for which a worker waits
      # for the lock. again: seconds after which a job whose lock is held by another comes back.
      #
      # A class has one lock: that of a subclass replaces the one above it.
      def lock(kind, ttl: 3600, wait: 0, limit: nil, again: 5, lease: JobLock::LEASE, &key)
        raise ArgumentError, "a lock is :until_executed or :while_executing, not #{kind.inspect}" unless %i[until_executed while_executing].include?(kind)
        raise ArgumentError, "a limit is for :while_executing only" if limit && kind == :until_executed

        key ||= -> { limit ? nil : arguments }
        self.mortise_lock = { kind: kind, key: key, again: again, options: { ttl: ttl, wait: wait, limit: limit, lease: lease } }
      end
    end

    private

    # A retry is on no other list by now: if its lock cannot be taken, it is queued without.
    def may_be_queued?
      !locked_when_queued? || job_lock.queue
    rescue StandardError => error
      raise if executions.zero?

      Mortise.log(:warn, "the job #{job_id} is queued again without its lock: #{error.message}")
      true
    end

    def locked_when_queued?
      mortise_lock && mortise_lock[:kind] == :until_executed && !@lock_again
    end

    def job_lock
      # Serialized, an object has the same name in each process; by itself its name may be an address.
      serialized = ::ActiveJob::Arguments.serialize([instance_exec(&mortise_lock[:key])])
      parts = ["activejob", self.class.name, Digest::SHA256.hexdigest(JSON.generate(serialized))[0, 32]]
      JobLock.new(Mortise::ActiveJob.redis, parts.join(":"), job_id, **mortise_lock[:options])
    end

    def under_lock(block)
      return if job_lock.run(&block)

      @lock_again = true # it holds no lock of its own meanwhile
      self.executions -= 1 # a wait is no execution, and no failed attempt
      enqueue(wait: mortise_lock[:again]) or raise try(:enqueue_error) || Busy.new("#{job_id} waits for its lock and was not queued again")
    end
  end
end
