# frozen_string_literal: true

# The lock of a job by itself, without a framework.

require_relative "helper"
require "mortise/job_lock"

class JobLockTest < Minitest::Test
  include Served

  def job(**options)
    Mortise::JobLock.new(Redis.new(port: (@relay || server).port), "job", name, **options)
  end

  def with_relay
    @relay = Relay.new(server.port)
    yield
  ensure
    @relay.pass_all
    Mortise.close(timeout: 30)
    @relay.close
  end

  def test_a_job_whose_queueing_is_interrupted_leaves_its_lock
    with_relay do
      Mortise::Lock.new(Redis.new(port: @relay.port), "other").synchronize { nil } # so that it is connected
      @relay.hold_back(:replies)
      queueing = in_thread { job.queue }
      eventually { server.held?("job") }
      queueing.raise(Timeout::Error)
      assert_raises(Timeout::Error) { queueing.value }
      @relay.pass_all
      eventually { !server.held?("job") }
    end
  end

  def test_a_worker_that_is_interrupted_while_it_takes_the_lock_of_its_job_leaves_it
    with_relay do
      assert job.queue
      @relay.hold_back(:replies)
      running = in_thread { job(lease: 600).run { flunk } }
      eventually { server.holds("job").none? { |held| held["owner"] == "job:#{name}" } }
      running.raise(Timeout::Error)
      assert_raises(Timeout::Error) { running.value }
      @relay.pass_all
      eventually { !server.held?("job") }
    end
  end

  def test_a_job_does_not_run_while_another_holds_its_lock
    Mortise::Lock.new(Redis.new(port: server.port), "job").synchronize { refute(job.run { flunk }) }
    assert(job.run { nil })
  end

  def test_a_lease_may_have_a_fraction
    assert job.queue
    holds = nil
    assert(job(lease: 2.5).run { holds = server.holds("job").size })
    assert_equal 1, holds
    refute server.held?("job")
  end
end
