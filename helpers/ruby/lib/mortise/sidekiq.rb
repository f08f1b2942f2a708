# frozen_string_literal: true

# Sidekiq's jobs: unique until executed, one at a time while executed, or at most so many at a time. The options have the names
# that sidekiq-unique-jobs gives them.
#
#   sidekiq_options lock: :until_executed    # from being queued until it has run
#   sidekiq_options lock: :while_executing   # queued as often as you like, run one at a time
#   sidekiq_options lock: :while_executing, lock_limit: 5

require "digest"
require "json"
require "sidekiq"
require_relative "job_lock"

module Mortise
  module Sidekiq
    class << self
      attr_writer :redis

      # The server of the locks; by default Sidekiq's own.
      def redis
        @redis || ::Sidekiq.redis_pool
      end

      # Adds both middlewares. For the initializer.
      def install
        ::Sidekiq.configure_client { |config| config.client_middleware { |chain| chain.add(Client) } }
        ::Sidekiq.configure_server do |config|
          config.client_middleware { |chain| chain.add(Client) }
          config.server_middleware { |chain| chain.add(Server) }
        end
      end

      # The lock of a job. It waits for `lock_ttl` seconds at most (an hour), after the time at which it is due.
      def lock_of(job)
        known(job, "lock", %w[until_executed while_executing])
        known(job, "on_conflict", ["", "reschedule", "log", "raise"])
        raise ArgumentError, "lock_limit is for lock: :while_executing only" if job["lock_limit"] && job["lock"].to_s == "until_executed"

        delay = [job["at"].to_f - Time.now.to_f, 0].max
        JobLock.new(redis, key_of(job), job["jid"], ttl: seconds(job, "lock_ttl", 3600) + delay, wait: seconds(job, "lock_timeout", 0),
                                                    limit: job["lock_limit"], lease: seconds(job, "lock_lease", JobLock::LEASE))
      end

      # JSON makes texts of durations such as `10.minutes`.
      def seconds(job, option, default)
        Float(job[option] || default)
      end

      private

      def known(job, option, choices)
        raise ArgumentError, "#{option} is one of #{choices.join(" ")}, not #{job[option].inspect}" unless choices.include?(job[option].to_s)
      end

      # A limit is one for all jobs of a class, a lock one for each of their arguments, unless `lock_args_method` says what it is for.
      def key_of(job)
        chosen = job["lock_args_method"]
        args = JSON.parse(JSON.generate(job["args"])) # as the worker gets them
        args = plain(Object.const_get(job["class"]).public_send(chosen, args), chosen) if chosen
        parts = job["lock_limit"] && !chosen ? [] : [Digest::SHA256.hexdigest(JSON.generate(args))[0, 32]]
        ["sidekiq", job["class"], *parts].join(":")
      end

      # An object has another name in each process: then the same job would have several locks.
      def plain(value, method)
        case value
        when nil, true, false, String, Symbol, Numeric then value
        when Array then value.map { |item| plain(item, method) }
        when Hash then value.to_h { |name, item| [plain(name, method), plain(item, method)] }
        else raise ArgumentError, "#{method} has to return what JSON knows, such as a String, not #{value.class}"
        end
      end
    end

    # Keeps a job out of the queue while another one with its lock waits or runs.
    class Client
      def call(_class, job, _queue, _pool)
        return yield if !job["lock"] || job["lock"].to_s == "while_executing" || job["lock_again"] == [job["retry_count"]]

        lock, free = take(job)
        queued = free && yield
      ensure
        lock&.unqueue if free && !queued # a later middleware stopped it
      end

      private

      # The lock of the job, and whether the job may be queued. If the server refuses the lock or does not answer, or the job's own method
      # fails, the job is queued without it: a scheduled job is on no other list by now. The worker needs the lock in any case.
      def take(job)
        lock = Sidekiq.lock_of(job)
        free = lock.queue
        ::Sidekiq.logger.info("job #{job["jid"]} is not queued: one with its lock waits or runs") unless free
        [lock, free]
      rescue StandardError => error
        ::Sidekiq.logger.warn("job #{job["jid"]} is queued without its lock: #{error.message}")
        [nil, true]
      end
    end

    # Runs a job under its lock. If another one has it, the job comes back later, or `on_conflict` says otherwise.
    class Server
      def call(_instance, job, _queue, &block)
        return yield unless job["lock"]

        Sidekiq.lock_of(job).run(&block) || conflict(job)
      end

      private

      def conflict(job)
        case job["on_conflict"].to_s
        when "raise" then raise Busy, "another job holds the lock of #{job["jid"]}" # Sidekiq retries it
        when "log" then ::Sidekiq.logger.info("job #{job["jid"]} is dropped: another one holds its lock")
        else
          # It comes back without a lock of its own. If it fails then, its count of retries changes, and the retry takes a lock again. The
          # count is in a list because a job that has never failed has none.
          at = Time.now.to_f + Sidekiq.seconds(job, "lock_again_in", 5)
          ::Sidekiq::Client.push(job.merge("lock_again" => [job["retry_count"]], "at" => at))
        end
      end
    end
  end
end
