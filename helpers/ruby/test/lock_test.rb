# frozen_string_literal: true

# What a user expects, with every kind of client that is installed.

require "delegate"
require_relative "helper"

module LockTests
  include Served

  def client
    @client ||= CLIENTS.fetch(self.class::KIND).call(server.port)
  end

  def lock(key = "stock", **options)
    Mortise::Lock.new(client, key, **options)
  end

  PROGRAM = <<~RUBY
    require "mortise/lock"
    require "redis"
    Mortise::Lock.new(Redis.new(port: ARGV[0]), ARGV[1], lease: ARGV[2].to_f).acquire
    puts "held"
    $stdout.flush
    $stdin.read
  RUBY

  # A client whose user has not all the rights.
  def limited(*rights)
    server.call("ACL", "SETUSER", "limited", "reset", "on", ">secret", "~*", "&*", "+@all", *rights)
    CLIENTS.fetch(self.class::KIND).call(server.port, username: "limited", password: "secret")
  end

  def test_the_lock_is_held_while_the_block_runs_and_free_afterwards
    answer = lock.synchronize do |hold|
      assert_equal "mort-lock", server.call("TYPE", "stock")
      assert hold.held? && lock.locked?
      42
    end
    assert_equal 42, answer
    refute server.held?("stock")
    refute lock.locked?
  end

  def test_a_second_acquire_is_refused_at_once_or_after_its_limit
    lock.synchronize do
      assert_nil lock.acquire(wait: 0)
      began = Mortise.now
      assert_nil lock.acquire(wait: 0.3)
      assert_operator Mortise.now - began, :>=, 290
      assert_raises(Mortise::Busy) { lock(wait: 0).synchronize { flunk } }
    end
  end

  def test_waiters_are_granted_in_the_order_of_their_requests
    served, held = Queue.new, lock.acquire
    threads = Array.new(5) do |number|
      thread = in_thread { lock.synchronize { served << number } }
      eventually { server.waiters("stock") == number + 1 }
      thread
    end
    held.release
    threads.each(&:value)
    assert_equal [0, 1, 2, 3, 4], Array.new(5) { served.pop }
  end

  def test_fencing_tokens_only_grow
    tokens = Array.new(5) { lock.synchronize(&:token) }
    assert_equal tokens.uniq.sort, tokens
  end

  def test_readers_share_and_no_reader_overtakes_a_waiting_writer
    readers = Array.new(2) { Mortise::ReadLock.new(client, "page").acquire(wait: 0) }
    writing = in_thread { lock("page").acquire }
    eventually { server.waiters("page") == 1 }
    assert_nil Mortise::ReadLock.new(client, "page").acquire(wait: 0)
    readers.each(&:release)
    writing.value.release
  end

  def test_a_lock_outlives_its_lease_unless_renewal_is_off
    kept, ended = lock(lease: 3).acquire, lock("other", lease: 0.6, renew: false).acquire
    before = server.count("total_renewals")
    assert ended.wait_lost(30)
    eventually { server.count("total_renewals") >= before + 2 }
    refute kept.lost?
    kept.release
    assert_raises(Mortise::Lost) { ended.release }
  end

  def test_a_lock_that_is_not_renewed_can_be_extended
    hold = lock(lease: 3, renew: false).acquire
    hold.extend(60)
    assert_operator server.holds("stock").first["lease"], :>, 50_000
    refute hold.wait_lost(3.2)
    hold.release
  end

  def test_a_lock_is_extended_by_a_number_of_seconds_before_its_release
    hold = lock(renew: false).acquire
    [nil, "abc", -5, 0].each { |seconds| assert_raises(ArgumentError, TypeError, seconds.inspect) { hold.extend(seconds) } }
    assert hold.held?
    hold.release
    assert_match(/released already/, assert_raises(Mortise::Error) { hold.extend(60) }.message)
  end

  def test_a_lock_that_cannot_be_extended_is_over_and_left
    hold = lock(lease: 600, renew: false).acquire
    lock.revoke
    assert_raises(Mortise::Lost) { hold.extend(60) }
    refute hold.held?
    eventually { !server.held?("stock") }
  end

  def test_a_lock_is_renewed_no_longer_than_max_hold
    hold = lock(lease: 0.5, max_hold: 1).acquire
    assert hold.wait_lost(30)
    eventually { !server.held?("stock") }
  end

  def test_a_loss_is_reported_and_a_release_after_it_fails
    hold = lock(lease: 0.6).acquire
    server.call("DEL", "stock")
    assert hold.wait_lost(30)
    assert hold.lost?
    assert_raises(Mortise::Lost) { hold.check! }
    assert_raises(Mortise::Lost) { hold.release }
    assert_raises(Mortise::Lost) { lock.synchronize { server.call("DEL", "stock") } }
  end

  def test_an_error_of_the_block_is_not_hidden_by_a_loss
    error = assert_raises(KeyError) do
      lock.synchronize do
        server.call("DEL", "stock")
        raise KeyError, "mine"
      end
    end
    assert_equal "mine", error.message
    assert_kind_of Mortise::Lost, error.cause
    inner = assert_raises(KeyError) do
      lock.synchronize do
        server.call("DEL", "stock")
        raise KeyError, "mine", cause: RuntimeError.new("before")
      end
    end
    assert_equal "before", inner.cause.message
  end

  def test_an_error_of_the_block_is_not_hidden_by_a_logger_that_fails
    logger, Mortise.logger = Mortise.logger, Object.new
    assert_raises(KeyError) do
      lock.synchronize do
        server.call("DEL", "stock")
        raise KeyError, "mine"
      end
    end
  ensure
    Mortise.logger = logger
  end

  def test_a_block_may_give_its_lock_back_itself
    [[:release], [:keep_for, 0.01], [:pass, "somebody", 0.01]].each do |call|
      assert_equal 42, lock.synchronize { |hold| [hold.public_send(*call), 42].last }, call.inspect
    end
  end

  def test_a_block_that_is_left_early_releases_the_lock
    [1].each { lock.synchronize { break } }
    catch(:out) { lock.synchronize { throw :out } }
    refute server.held?("stock")
  end

  def test_a_guarded_command_runs_while_the_lock_is_held_and_never_after
    hold = lock.acquire
    assert_equal "OK", hold.guard("SET", "data", 1)
    assert_raises(ArgumentError) { hold.guard("SET", "data", nil) }
    server.call("DEL", "stock")
    other = lock.acquire
    assert_raises(Mortise::Lost) { hold.guard("SET", "data", 2) }
    assert_equal "1", server.call("GET", "data")
    other.release
  end

  def test_a_key_that_is_no_lock_is_refused_and_stays
    server.call("SET", "stock", "bread")
    assert_raises(Mortise::Refused) { lock.acquire(wait: 5) }
    assert_equal "bread", server.call("GET", "stock")
  end

  def test_overwriting_a_held_lock_is_reported_at_the_end_of_the_block
    hold = lock.acquire
    server.call("SET", "stock", "bread")
    assert_raises(Mortise::Lost) { hold.release }
  end

  def test_a_deadlock_between_tasks_is_reported_to_the_one_that_closes_it
    one, two = lock("a", task: "one").acquire, lock("b", task: "two").acquire
    waiting = in_thread { lock("b", task: "one").acquire }
    eventually { server.waiters("b") == 1 }
    error = assert_raises(Mortise::Deadlock) { lock("a", task: "two").acquire }
    assert_match(/DEADLOCK/, error.message)
    two.release
    [waiting.value, one].each(&:release)
  end

  def test_a_lock_stays_taken_for_a_while_after_short_work
    hold = lock.acquire
    hold.keep_for(2)
    refute hold.held? || hold.lost?
    assert_nil lock.acquire(wait: 0)
    assert_includes 1..2_000, server.holds("stock").first["lease"]
    lock.acquire(wait: 30).release
  end

  def test_a_lock_that_the_server_does_not_keep_for_so_long_is_held_as_before
    hold = lock.acquire
    assert_raises(Mortise::Refused) { hold.keep_for(2**32) }
    assert hold.held?
    hold.release
    refute server.held?("stock")
  end

  def test_a_passed_lock_is_taken_over_by_one_of_several
    token = lock.acquire.pass("job:7", 600)
    hold = lock(lease: 3).take_over("job:7", token)
    assert_nil lock.take_over("job:7", token)
    assert_operator hold.token, :>, token
    before = server.count("total_renewals")
    eventually { server.count("total_renewals") >= before + 2 }
    hold.release
    refute server.held?("stock")
  end

  def test_a_lock_held_by_a_given_name_is_taken_over_by_who_knows_the_name
    2.times { assert_equal "job:7", lock(renew: false).acquire(wait: 0, owner: "job:7").owner }
    assert_nil lock.acquire(wait: 0, owner: "job:8")
    hold = lock.take_over("job:7")
    assert_nil lock.take_over("job:7")
    hold.release
    refute server.held?("stock")
  end

  def test_a_lock_taken_elsewhere_is_resumed_under_its_name_and_released
    hold = lock(renew: false).acquire
    other = lock(lease: 3).resume(hold.owner, hold.token)
    assert_equal [hold.owner, hold.token], [other.owner, other.token]
    assert other.held?
    assert_nil lock.resume(hold.owner, hold.token + 1)
    other.release
    refute server.held?("stock")
    assert_nil lock.resume(hold.owner, hold.token)
  end

  def test_an_owner_may_be_a_symbol_and_a_token_a_text
    token = lock(renew: false).acquire(owner: :job).token
    assert_equal ["job", token], lock(renew: false).resume(:job, token.to_s).then { |hold| [hold.owner, hold.token] }
    assert_raises(TypeError) { lock.resume(:job, nil) }
    lock.take_over(:job).release
    refute server.held?("stock")
  end

  def test_a_revoked_lock_is_lost_at_its_next_renewal_and_left
    hold = lock(lease: 3).acquire
    assert_operator lock.revoke, :>, 1
    assert hold.wait_lost(30)
    eventually { !server.held?("stock") }
    assert_equal 0, lock.revoke
    assert_equal 0, lock.revoke("nobody")
  end

  def test_permits_are_granted_up_to_the_limit_and_released
    pool = Mortise::Semaphore.new(client, "pool", 3)
    two, one = Mortise::Semaphore.new(client, "pool", 3, permits: 2).acquire, pool.acquire
    assert_nil pool.acquire(wait: 0)
    waiting = in_thread { pool.acquire }
    eventually { server.waiters("pool") == 1 }
    two.release
    [waiting.value, one].each(&:release)
    refute server.held?("pool")
  end

  def test_a_lock_is_passed_to_another_name
    hold = lock.acquire
    hold.pass("somebody", 60)
    assert_equal ["somebody"], server.holds("stock").map { |held| held["owner"] }
    refute hold.held?
    refute hold.lost?
  end

  def test_a_lock_whose_pass_is_refused_is_held_and_renewed_as_before
    server.call("LOCK.LEAVE", "stock", "gone", "FOR", 60_000)
    hold = lock(lease: 3).acquire
    [[hold.owner, 60], ["gone", 60], ["somebody", 2**40]].each do |arguments|
      assert_raises(Mortise::Refused, arguments.inspect) { hold.pass(*arguments) }
      assert hold.held?
    end
    before = server.count("total_renewals")
    eventually { server.count("total_renewals") >= before + 2 }
    hold.release
    refute server.held?("stock")
  end

  def test_a_pass_to_nobody_or_for_no_time_is_refused_and_the_lock_held_as_before
    hold = lock(lease: 600).acquire
    [[nil, 60], ["", 60], ["x" * 256, 60], ["x", "60"], ["x", nil], ["x", -1], ["x", Float::INFINITY], ["x", 2**50]].each do |arguments|
      assert_raises(ArgumentError, TypeError, arguments.inspect) { hold.pass(*arguments) }
      assert hold.held?
    end
    hold.release
    refute server.held?("stock")
    assert Mortise.close(client, timeout: 30)
  end

  def test_a_user_who_may_not_pass_locks_keeps_them_and_can_release_them
    @client = limited("-lock.pass")
    hold = lock.acquire
    assert_match(/NOPERM/, assert_raises(Mortise::Refused) { hold.pass("somebody", 60) }.message)
    hold.release
    refute server.held?("stock")
  end

  def test_a_waiter_is_refused_where_the_server_lets_no_more_wait
    held = lock.acquire
    server.call("CONFIG", "SET", "lock.max-waiters", 0)
    assert_match(/MAXWAITERS/, assert_raises(Mortise::Refused) { lock.acquire }.message)
    eventually { server.waiters("stock").zero? }
    held.release
  ensure
    server.call("CONFIG", "SET", "lock.max-waiters", 10_000)
  end

  def test_a_lost_lock_cannot_be_passed
    hold = lock(lease: 600).acquire
    server.call("DEL", "stock")
    assert_raises(Mortise::Lost) { hold.pass("somebody", 60) }
    ended = lock(lease: 0.1, renew: false).acquire
    assert ended.wait_lost(30)
    2.times { assert_raises(Mortise::Lost) { ended.pass("somebody", 60) } }
  end

  def test_a_waiter_has_a_connection_and_the_next_ones_use_it_again
    @client = CLIENTS.fetch(self.class::KIND).call(server.port, id: "crowd")
    held = lock.acquire
    threads = Array.new(20) { in_thread { lock.synchronize { true } } }
    eventually { server.waiters("stock") == 20 }
    held.release
    assert threads.all?(&:value)
    20.times { lock.synchronize { true } }
    assert_includes 1..22, server.connections("crowd") # one for each that has waited or begun to, and one for renewals
  end

  def test_a_killed_waiter_costs_the_next_one_nothing
    held = lock.acquire
    IO.popen([RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-e", PROGRAM, server.port.to_s, "stock", "30"], "r+") do |dying|
      eventually { server.waiters("stock") == 1 }
      waiting = in_thread { lock.acquire }
      eventually { server.waiters("stock") == 2 }
      Process.kill(:KILL, dying.pid)
      eventually { server.waiters("stock") == 1 }
      held.release
      waiting.value.release
    end
  end

  def test_invalid_arguments_are_refused_at_once
    [{ lease: 0 }, { lease: 0.002 }, { lease: -1 }, { max_hold: 0 }].each do |options|
      assert_raises(ArgumentError, options.inspect) { lock(**options) }
    end
    assert_match(/\Await is .* to 8796093022208 seconds/, assert_raises(ArgumentError) { lock(wait: Float::INFINITY) }.message)
    [{ lease: "10" }, { lease: nil }, { wait: "5" }].each { |options| assert_raises(TypeError) { lock(**options) } }
    assert_raises(ArgumentError) { lock([]) }
    assert_raises(ArgumentError) { Mortise::Lock.new(Object.new, "stock").acquire }
    prefixing = Class.new(SimpleDelegator) { def namespace = "shop" } # as Redis::Namespace
    assert_raises(ArgumentError) { Mortise::Lock.new(prefixing.new(client), "stock").acquire }
    assert_raises(ArgumentError) { Mortise::Semaphore.new(client, "pool", 2, permits: 3) }
  end

  def test_an_interrupted_waiter_leaves_the_queue_and_blocks_nobody
    held = lock.acquire
    assert_raises(Timeout::Error) { Timeout.timeout(0.3) { lock.acquire } }
    killed = in_thread { lock.acquire }
    eventually { server.waiters("stock") == 1 }
    killed.kill
    raised = in_thread { lock.acquire }
    eventually { server.waiters("stock") == 1 && !killed.alive? }
    raised.raise(KeyError, "stop")
    assert_raises(KeyError) { raised.value }
    eventually { server.waiters("stock").zero? }
    held.release
    lock.acquire(wait: 0).release
  end

  def test_an_interrupted_holder_releases_the_lock
    inside = Queue.new
    thread = in_thread { lock.synchronize { inside << true and sleep } }
    inside.pop
    thread.kill
    lock(wait: 30).synchronize { refute thread.alive? && thread.join(30).nil? }
  end

  def test_a_forked_child_acquires_its_own_locks_and_leaves_its_parents_alone
    hold = lock.acquire
    output = in_child do
      release = assert_raises(Mortise::Error) { hold.release }
      [hold.held?, lock.acquire(wait: 0), release.message, lock("own").synchronize { |own| own.owner == hold.owner }].inspect
    end
    assert_match(/\A\[false, nil, ".*another process.*", false\]/, output)
    assert hold.held? && server.held?("stock")
    hold.release
  end

  def test_a_forked_child_that_leaves_the_block_of_its_parent_releases_nothing
    lock.synchronize do |hold|
      child = fork or break
      assert_predicate Process.wait2(child).last, :success?
      assert hold.held? && server.held?("stock")
      @is_parent = true
    end
    exit!(0) unless @is_parent
  rescue Mortise::Error
    @is_parent ? raise : exit!(1)
  end

  def test_a_process_that_ends_releases_its_locks_and_those_of_a_killed_one_end_with_their_leases
    command = [RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-e", PROGRAM, server.port.to_s]
    IO.popen([*command, "stock", "600"], "r+") do |ending|
      assert_equal "held\n", ending.gets
      assert server.held?("stock")
      ending.close_write
    end
    refute server.held?("stock")
    IO.popen([*command, "stock", "1"], "r+") do |killed|
      assert_equal "held\n", killed.gets
      Process.kill(:KILL, killed.pid)
    end
    lock(wait: 30).synchronize { assert true }
  end

  def test_closing_releases_all_locks_and_ends_waits_with_an_error
    @client = CLIENTS.fetch(self.class::KIND).call(server.port, id: "closing")
    hold, waiting = lock(lease: 600).acquire, in_thread { lock.acquire }
    eventually { server.waiters("stock") == 1 }
    assert Mortise.close(client, timeout: 30)
    refute server.held?("stock")
    assert hold.lost?
    assert_raises(Mortise::Unreachable) { waiting.value }
    lock.acquire(wait: 0).release # the library can be used again
  end
end

CLIENTS.each_key do |kind|
  name = "By#{kind.to_s.split('_').map(&:capitalize).join}Test"
  Object.const_set(name, Class.new(Minitest::Test) { include LockTests }).const_set(:KIND, kind)
end
