# frozen_string_literal: true

# The Ruby libraries, one at a time: benches/peers/README.md says what a driver does.

$LOAD_PATH.unshift File.expand_path("../../../helpers/ruby/lib", __dir__)

require "json"

NAME = ARGV[0]
PORT, SECONDS, WORKERS, KEYS, HOLD, THINK, _writers, PERMITS = ARGV[1..].map(&:to_i)
TTL = 30
DUE = 0.1 # a job whose lock is taken is over: so soon it is run again
REDIS_RB = "~> 4.8" # the latest that redis-semaphore works with

# What runs a block under a key's lock, or with a permit of its semaphore, waiting without a limit. One for each thread.
CONTENDERS = {
  "mortise" => lambda do
    gem "redis", REDIS_RB
    require "redis"
    require "mortise/lock"
    client = Redis.new(port: PORT)
    lambda do |key, &block|
      lock = PERMITS.zero? ? Mortise::Lock.new(client, key) : Mortise::Semaphore.new(client, key, PERMITS)
      lock.synchronize(&block)
    end
  end,
  "redis-semaphore" => lambda do
    gem "redis", REDIS_RB
    require "redis-semaphore"
    Redis.silence_deprecations = true if Redis.respond_to?(:silence_deprecations=)
    lambda do |key, &block| # a connection for each thread, because who waits keeps it
      redis = Thread.current[:redis] ||= Redis.new(port: PORT)
      Redis::Semaphore.new(key, redis: redis, resources: [PERMITS, 1].max).lock(&block)
    end
  end,
  "sidekiq-unique-jobs" => lambda do
    require "sidekiq-unique-jobs"
    Sidekiq.logger.level = Logger::FATAL
    Sidekiq.configure_client { |config| config.redis = { url: "redis://127.0.0.1:#{PORT}", size: WORKERS + 10, timeout: 20 } }
    lambda do |key, &block|
      ran = false
      job = { "class" => "Work", "queue" => "default", "args" => [key], "jid" => SecureRandom.hex(12), "lock" => "while_executing",
              "lock_ttl" => TTL, "lock_digest" => "uniquejobs:#{key}" }
      loop do
        SidekiqUniqueJobs::Lock::WhileExecuting.new(job, -> {}).execute do
          ran = true
          block.call
        end
        break if ran

        sleep DUE
      end
    end
  end
}.freeze

def micros
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
end

take = CONTENDERS.fetch(NAME).call
200.times { take.call("warm") {} }
puts "ready"
$stdout.flush
$stdin.gets

waits = Array.new(WORKERS) { [] }
since = Array.new(WORKERS)
Thread.report_on_exception = true
WORKERS.times do |worker|
  Thread.new do
    (worker..).step(WORKERS) do |number|
      since[worker] = micros
      take.call("key:#{number % KEYS}") do
        waits[worker] << (micros - since[worker])
        since[worker] = nil
        sleep HOLD / 1000.0 if HOLD.positive?
      end
      sleep THINK / 1000.0 if THINK.positive?
    end
  end
end
sleep SECONDS
served = waits.map(&:size)
over = micros
since.each_with_index { |start, worker| waits[worker] << (over - start) if start }
puts JSON.generate(served: served, waits: waits)
$stdout.flush
$stdin.gets
exit!
