# frozen_string_literal: true

# Sidekiq's own processes with the middlewares: killed workers, jobs that are delivered more than once, limits.

require_relative "helper"

class SidekiqTest < Minitest::Test
  include Served

  CLI = 'require "sidekiq/cli"; cli = Sidekiq::CLI.instance; cli.parse(ARGV); cli.run'
  JOBS = File.expand_path("sidekiq_jobs.rb", __dir__)

  def setup
    super
    ENV["REDIS_URL"] = "redis://127.0.0.1:#{server.port}"
    begin
      require_relative "sidekiq_jobs"
    rescue LoadError => error
      skip "Sidekiq is not there: #{error.message}"
    end
    Mortise::Sidekiq.redis = @locks = Redis.new(port: server.port)
    Sidekiq.logger.level = Logger::ERROR
    @workers, @ledger = [], "#{Dir.mktmpdir('mortise-sidekiq-')}/ledger"
  end

  def teardown
    @workers&.each { |pid| stop(pid, :KILL) }
    FileUtils.rm_rf(File.dirname(@ledger)) if @ledger
    super
  end

  def work
    log = { out: File::NULL, err: File::NULL }
    @workers << spawn(ENV.to_h, RbConfig.ruby, "-e", CLI, "--", "-q", "default", "-r", JOBS, "-c", "5", "-t", "1", **log)
    @workers.last
  end

  def stop(pid, signal)
    Process.kill(signal, pid)
    Process.wait(pid)
  rescue Errno::ESRCH, Errno::ECHILD
    nil
  end

  # Two of Sidekiq's processes have to start first, which takes most of a minute on a busy machine.
  def eventually(seconds = 240, &block)
    super
  end

  # [word, who, when] of each line.
  def notes
    File.exist?(@ledger) ? File.readlines(@ledger).map(&:split) : []
  end

  def count(word)
    notes.count { |said, *| said == word }
  end

  # The most that ran at once.
  def most_at_once
    notes.map { |word, _, at| [at.to_f, word == "enter" ? 1 : -1] }.sort.reduce([0, 0]) do |(now, most), (_, change)|
      [now + change, [most, now + change].max]
    end.last
  end

  def deliver_again(times)
    job = server.call("LRANGE", "queue:default", 0, 0).first
    times.times { server.call("LPUSH", "queue:default", job) }
    job
  end

  def test_the_lock_of_a_job_is_the_same_for_its_client_and_its_worker
    job = { "class" => "Chosen", "args" => [{ id: 7 }], "jid" => "1", "lock_args_method" => "of" }
    names = [job, job.merge("args" => [{ "id" => 7 }])].map { |one| Mortise::Sidekiq.send(:key_of, one) }
    assert_equal 1, names.uniq.size
    assert_raises(ArgumentError) { Mortise::Sidekiq.send(:key_of, job.merge("args" => [{}])) }
  end

  def key(job)
    Mortise::Sidekiq.send(:key_of, job)
  end

  # The next scheduled job, taken off its list as Sidekiq does when it is due.
  def scheduled
    JSON.parse(server.call("ZPOPMIN", "schedule").first)
  end

  def queue_size
    server.call("LLEN", "queue:default")
  end

  def test_a_scheduled_job_whose_lock_is_refused_is_queued_without_it
    Once.perform_in(600, @ledger, 0)
    job = scheduled
    server.call("LOCK.REVOKE", key(job), "job:#{job['jid']}")
    Sidekiq::Client.push(job)
    assert_equal 1, queue_size
  end

  def test_a_scheduled_job_whose_lock_args_method_fails_is_queued_without_its_lock
    job = { "class" => "Chosen", "args" => [nil], "jid" => "1", "lock" => "until_executed", "lock_args_method" => "of" }
    queueing = Mortise::Sidekiq::Client.new
    assert_equal job, queueing.call(nil, job, "default", nil) { job }
    assert_raises(KeyError) { queueing.call(nil, job, "default", nil) { raise KeyError } }
    assert_raises(IndexError) { Mortise::Sidekiq::Server.new.call(nil, job, "default") { flunk } }
  end

  def test_options_may_be_the_texts_that_json_makes_of_durations
    job = { "class" => "Once", "args" => [1], "jid" => "1", "lock" => "until_executed", "lock_ttl" => "600", "lock_timeout" => "0",
            "lock_lease" => "3", "lock_again_in" => "60" }
    ran = false
    Mortise::Sidekiq::Server.new.call(nil, job, "default") { ran = true }
    assert ran
    Mortise::Lock.new(@locks, key(job)).synchronize { Mortise::Sidekiq::Server.new.call(nil, job, "default") { flunk } }
    assert_equal "1", scheduled["jid"]
  end

  def test_a_job_that_is_unique_from_being_queued_has_no_limit
    job = { "class" => "Once", "args" => [1], "jid" => "1", "lock" => "until_executed", "lock_limit" => 2 }
    assert_match(/lock_limit/, assert_raises(ArgumentError) { Mortise::Sidekiq.lock_of(job) }.message)
  end

  def test_a_job_with_an_option_that_is_unknown_is_queued_and_never_runs_without_its_lock
    [{ "lock" => "until_executing" }, { "lock" => "until_executed", "on_conflict" => "replace" }].each do |options|
      job = { "class" => "Once", "args" => [1], "jid" => "1", **options }
      assert(Mortise::Sidekiq::Client.new.call(nil, job, "default", nil) { job })
      assert_raises(ArgumentError, options.inspect) { Mortise::Sidekiq::Server.new.call(nil, job, "default") { flunk } }
    end
    none = { "class" => "Once", "args" => [1], "jid" => "1", "lock" => false }
    assert(Mortise::Sidekiq::Client.new.call(nil, none, "default", nil) { none })
    assert(Mortise::Sidekiq::Server.new.call(nil, none, "default") { true })
  end

  def test_a_job_that_a_later_middleware_stops_gives_its_lock_back
    job = { "class" => "Once", "args" => [1], "jid" => "1", "lock" => "until_executed" }
    queueing = Mortise::Sidekiq::Client.new
    assert_nil(queueing.call(nil, job, "default", nil) { nil })
    refute server.held?(key(job))
    assert_raises(KeyError) { queueing.call(nil, job, "default", nil) { raise KeyError } }
    refute server.held?(key(job))
    assert(queueing.call(nil, job, "default", nil) { job })
    assert server.held?(key(job))
  end

  def test_the_retry_of_a_job_that_came_back_takes_its_lock_again
    job = { "class" => "Once", "args" => [1], "jid" => "1", "lock" => "until_executed", "lock_again_in" => 60 }
    Mortise::Lock.new(@locks, key(job)).synchronize do
      Mortise::Sidekiq::Server.new.call(nil, job, "default") { flunk }
      job = scheduled
      Sidekiq::Client.push(job)
      assert_equal 1, queue_size, "it was not queued"
    end
    Sidekiq::Client.push(job.merge("retry_count" => 0))
    assert_equal ["job:1"], server.holds(key(job)).map { |held| held["owner"] }
  end

  def test_a_job_is_queued_once_until_it_has_run
    assert Once.perform_async(@ledger, 0)
    refute Once.perform_async(@ledger, 0)
    assert Once.perform_async(@ledger, 0.1), "other arguments are another job"
    assert_equal 2, server.call("LLEN", "queue:default")
    work
    eventually { count("leave") >= 2 }
    eventually { Once.perform_async(@ledger, 0) }
  end

  def test_a_job_delivered_three_times_runs_once_at_a_time_even_beyond_its_lease
    Once.perform_async(@ledger, 4)
    deliver_again(2)
    2.times { work }
    # The copies that find it running come back later as one: Sidekiq stores equal scheduled jobs once.
    eventually { count("leave") >= 2 && server.call("ZCARD", "schedule").zero? && server.count("holders").zero? }
    assert_equal 1, most_at_once
  end

  def test_the_lock_of_a_worker_killed_during_its_job_ends_with_its_lease
    Once.perform_async(@ledger, 600)
    job = server.call("LRANGE", "queue:default", 0, 0).first
    killed = work
    eventually { count("enter") == 1 }
    stop(killed, :KILL)
    eventually(60) { server.count("holders").zero? } # its lease is 1 s, and its time in the queue may be 600 s
    server.call("LPUSH", "queue:default", job)
    work
    eventually { count("enter") == 2 }
    refute Once.perform_async(@ledger, 600), "a running job stays unique"
  end

  def test_jobs_that_are_unique_while_executed_run_one_after_the_other
    4.times { assert OneAtATime.perform_async(@ledger, 0.1) }
    work
    eventually { count("leave") == 4 }
    assert_equal 1, most_at_once
  end

  def test_a_limit_is_reached_and_never_exceeded
    8.times { |number| TwoAtATime.perform_async(@ledger, 0.3 + (number * 0.01)) }
    2.times { work }
    eventually { count("leave") == 8 }
    assert_equal 2, most_at_once
  end
end
