# frozen_string_literal: true

# Active Job and Rails' cache, with the real frameworks.

require_relative "helper"

begin
  require "logger"
  require "mortise/active_job"
  require "mortise/rails_cache"
rescue LoadError => error
  warn "Rails' parts are not there: #{error.message}"
end

class RailsTest < Minitest::Test
  include Served

  if defined?(Mortise::ActiveJob) && defined?(Mortise::RailsCache)
    ActiveJob::Base.queue_adapter = :async
    ActiveJob::Base.logger = Logger.new(File::NULL)
    RUNS = Queue.new

    class Job < ActiveJob::Base
      include Mortise::ActiveJob

      def perform(number, seconds)
        RUNS << [:enter, number]
        sleep seconds
        RUNS << [:leave, number]
        raise KeyError, "this fails" if number == :fails
      end
    end

    class Once < Job
      lock :until_executed, again: 0.1, lease: 3
    end

    # Runs under a lock that somebody else holds at first.
    class Counted < ActiveJob::Base
      include Mortise::ActiveJob
      lock(:while_executing, again: 0.05) { nil }

      def self.waits = (@waits ||= Queue.new)

      def lock_key
        serialized = ActiveJob::Arguments.serialize([nil])
        "activejob:#{self.class.name}:#{Digest::SHA256.hexdigest(JSON.generate(serialized))[0, 32]}"
      end

      def perform
        RUNS << executions
      end

      before_enqueue { |job| Counted.waits << job.executions }
    end

    class Keyed < ActiveJob::Base
      include Mortise::ActiveJob
      lock(:until_executed) { { "day" => 1, at: Time.at(0) } }

      def perform(_number)
        RUNS << :ran
      end
    end

    class Nameless < Keyed
      lock(:until_executed) { Object.new }
    end

    class Once::Below < Once
      lock :while_executing, again: 0.1
    end

    class OneAtATime < Job
      lock(:while_executing, again: 0.1, lease: 1) { nil }
    end

    # A later callback stops it.
    class Stopped < Job
      lock :until_executed
      before_enqueue { throw :abort }
    end

    # A callback does not let it come back.
    class Kept < Counted
      lock(:while_executing) { nil }
      before_enqueue { throw :abort }
    end

    class FailingAdapter < ActiveJob::QueueAdapters::AsyncAdapter
      def enqueue(_job) = raise(KeyError, "no queue")
    end

    Record = Struct.new(:id) do
      def cache_key = "records/#{id}"
      def to_s = "#<Record:0x#{object_id}>"
    end
  end

  def setup
    skip "Rails' parts are not there" unless defined?(RUNS)
    super
    Mortise::ActiveJob.redis = Redis.new(port: server.port)
    RUNS.clear
  end

  # Queued jobs end with their test, and so do the threads that would run them.
  def teardown
    ActiveJob::Base.queue_adapter.shutdown if defined?(RUNS)
    ActiveJob::Base.queue_adapter = :async if defined?(RUNS)
    super
  end

  def runs(count)
    Array.new(count) { Timeout.timeout(60) { RUNS.pop } }
  end

  def test_a_job_is_queued_once_until_it_has_run
    assert Once.perform_later(1, 3)
    refute Once.perform_later(1, 3)
    assert Once.perform_later(2, 0)
    assert_equal [1, 2], runs(4).map(&:last).uniq.sort
    eventually { Once.perform_later(1, 0) }
  end

  def test_a_job_that_is_not_queued_after_all_gives_its_lock_back
    refute Stopped.perform_later(1, 0)
    assert_equal 0, server.count("holders")
    ActiveJob::Base.queue_adapter = FailingAdapter.new
    assert_raises(KeyError) { Once.perform_later(1, 0) }
    assert_equal 0, server.count("holders")
    ActiveJob::Base.queue_adapter = :inline
    assert_raises(KeyError) { Once.perform_later(:fails, 0) } # the job's own error
    assert_equal 0, server.count("holders")
  ensure
    ActiveJob::Base.queue_adapter = :async
  end

  def test_a_retry_is_queued_though_the_server_of_its_lock_is_away
    Mortise::ActiveJob.redis = Redis.new(port: 1)
    ActiveJob::Base.queue_adapter = :test
    assert_raises(Mortise::Unreachable) { Once.perform_later(1, 0) }
    assert Once.new(1, 0).tap { |job| job.executions = 1 }.enqueue
    assert_equal 1, ActiveJob::Base.queue_adapter.enqueued_jobs.size
  ensure
    ActiveJob::Base.queue_adapter = :async
  end

  def test_a_retry_is_queued_though_the_key_of_its_lock_fails
    ActiveJob::Base.queue_adapter = :test
    retried = Class.new(Job) { lock(:until_executed) { raise IOError, "the database is away" } }.new
    assert_raises(IOError) { retried.enqueue }
    assert retried.tap { |job| job.executions = 1 }.enqueue
    assert_equal 1, ActiveJob::Base.queue_adapter.enqueued_jobs.size
  ensure
    ActiveJob::Base.queue_adapter = :async
  end

  def test_a_job_that_is_unique_from_being_queued_has_no_limit
    assert_raises(ArgumentError) { Class.new(Job) { lock :until_executed, limit: 2 } }
  end

  def test_the_lock_of_a_job_has_the_same_name_in_every_locale
    before = Encoding.default_external
    Encoding.default_external = Encoding::UTF_8
    assert Once.perform_later("Z\u00fcrich", 1)
    Encoding.default_external = Encoding::US_ASCII
    refute Once.perform_later("Z\u00fcrich", 1)
  ensure
    Encoding.default_external = before
  end

  def test_a_failed_job_releases_its_lock
    assert Once.perform_later(:fails, 0)
    runs(2)
    eventually { !server.count("holders").positive? }
  end

  def test_a_job_delivered_twice_runs_once_at_a_time_even_beyond_its_lease
    job = Once.new(1, 4)
    assert job.enqueue
    Thread.new { ActiveJob::Base.execute(job.serialize) }
    assert_equal %i[enter leave] * 2, runs(4).map(&:first)
  end

  def test_a_lock_in_a_subclass_replaces_the_one_above_it
    2.times { assert Once::Below.perform_later(1, 0.05) }
    assert_equal %i[enter leave] * 2, runs(4).map(&:first)
  end

  def test_jobs_that_are_unique_while_executed_run_one_after_the_other
    4.times { |number| assert OneAtATime.perform_later(number, 0.05) }
    assert_equal %i[enter leave] * 4, runs(8).map(&:first)
  end

  def cache
    @cache ||= ActiveSupport::Cache::RedisCacheStore.new(url: "redis://127.0.0.1:#{server.port}", namespace: "shop")
  end

  def test_a_missing_value_is_computed_by_one_while_the_others_wait
    computed = Queue.new
    threads = Array.new(8) do
      in_thread do
        cache.fetch_once("report") do
          computed << true
          sleep 0.1
          "the report"
        end
      end
    end
    assert_equal ["the report"], threads.map(&:value).uniq
    assert_equal 1, computed.size
  end

  # Active Support 7 keeps a miss in its local cache; version 6.1 does not.
  def test_a_value_that_the_request_has_missed_before_is_computed_or_read_from_the_server
    cache.with_local_cache do
      assert_nil cache.read("report")
      assert_equal "computed", cache.fetch_once("report") { "computed" }
      assert_equal "computed", cache.read("report")
      assert_nil cache.read("other")
      ActiveSupport::Cache::RedisCacheStore.new(url: "redis://127.0.0.1:#{server.port}", namespace: "shop").write("other", "by another")
      assert_equal "by another", cache.fetch_once("other") { flunk }
    end
  end

  def test_equal_records_have_the_same_lock
    cache.lock(Record.new(7)).synchronize { assert_nil cache.lock(Record.new(7)).acquire(wait: 0) }
    cache.lock(%w[a b]).synchronize { assert server.held?("shop:lock:a/b") }
  end

  def test_a_cached_false_or_nil_is_not_computed_again
    [false, nil].each do |value|
      computed = 0
      2.times { assert_equal [value], [cache.fetch_once("flag-#{value.inspect}") { (computed += 1) && value }] }
      assert_equal 1, computed, value.inspect
    end
  end

  def test_a_job_that_waited_for_its_lock_has_had_no_attempt_more
    hold = Mortise::Lock.new(Mortise::ActiveJob.redis, Counted.new.lock_key).acquire
    Counted.perform_later
    eventually { Counted.waits.size >= 2 }
    hold.release
    assert_equal 1, Timeout.timeout(60) { RUNS.pop }
  end

  def test_a_job_that_waits_for_its_lock_and_cannot_be_queued_again_fails
    Mortise::Lock.new(Mortise::ActiveJob.redis, Kept.new.lock_key).synchronize do
      assert_raises(Mortise::Busy) { Kept.perform_now }
    end
  end

  def test_the_lock_of_a_job_has_the_same_name_whatever_object_it_is_made_of
    assert Keyed.perform_later(1)
    eventually { server.count("holders").zero? && !RUNS.empty? }
    assert_raises(ActiveJob::SerializationError) { Nameless.perform_later(1) }
  end

  def test_a_lock_of_the_cache_does_not_clash_with_a_cached_value
    cache.lock("report").synchronize do
      assert_equal "mort-lock", server.call("TYPE", "shop:lock:report")
      cache.write("report", 1)
    end
    assert_equal 1, cache.read("report")
  end
end
