# frozen_string_literal: true

# Several locks at once: all or none.

require_relative "helper"

module MultiLockTests
  include Served

  def client
    @client ||= CLIENTS.fetch(self.class::KIND).call(server.port)
  end

  def several(*keys, **options)
    Mortise::Lock.new(client, keys, **options)
  end

  def test_several_locks_are_acquired_at_once_by_one_token_and_released_together
    locks = several("a", :b, "c")
    answer = locks.synchronize do |hold|
      assert hold.held? && locks.locked?
      assert_equal %w[a b c], hold.keys
      assert_equal [hold.token], hold.keys.flat_map { |key| server.holds(key).map { |held| held["token"] } }.uniq
      hold.keys.each { |key| assert_nil Mortise::Lock.new(client, key).acquire(wait: 0) }
      42
    end
    assert_equal 42, answer
    refute locks.locked?
    %w[a b c].each { |key| refute server.held?(key) }
  end

  def test_a_waiter_for_several_locks_holds_none_and_is_granted_all_when_the_last_is_free
    b = Mortise::Lock.new(client, "b").acquire
    assert_nil several("a", "b").acquire(wait: 0.05)
    waiting = in_thread { several("a", "b").acquire }
    eventually { server.waiters("a") == 1 }
    refute server.held?("a")
    b.release
    assert_operator waiting.value.token, :>, b.token
    waiting.value.release
    refute server.held?("a") || server.held?("b")
  end

  def test_each_of_several_locks_is_renewed_and_the_loss_of_one_is_reported
    hold = several("a", "b", lease: 3).acquire
    renewals = server.count("total_renewals")
    eventually { server.count("total_renewals") >= renewals + 4 }
    assert hold.held?
    server.call("DEL", "b")
    eventually { hold.lost? }
    assert_raises(Mortise::Lost) { hold.check! }
    assert_raises(Mortise::Lost) { hold.release }
    refute server.held?("a")
  end

  def test_several_locks_are_extended_together
    hold = several("a", "b", lease: 3, renew: false).acquire
    hold.extend(60)
    hold.keys.each { |key| assert_operator server.holds(key).first["lease"], :>, 50_000 }
    hold.release
  end

  def test_several_locks_stay_taken_for_a_while_after_their_release
    hold = several("a", "b").acquire
    hold.keep_for(600)
    hold.keys.each { |key| assert_operator server.holds(key).first["lease"], :>, 500_000 }
    assert_raises(ArgumentError) { several("a", "c").take_over("somebody", 1) }
  end

  def test_all_of_several_locks_are_left_where_a_call_finds_one_of_them_gone
    [->(hold) { hold.extend(600) }, ->(hold) { hold.guard("SET", "data", 1) }, ->(hold) { hold.keep_for(600) }].each do |call|
      hold = several("a", "b", lease: 600, renew: false).acquire
      server.call("DEL", "a")
      assert_raises(Mortise::Lost) { call.call(hold) }
      refute hold.held?
      eventually { !server.held?("b") }
    end
  end

  def test_several_locks_are_not_passed_on
    hold = several("a", "b").acquire
    assert_raises(ArgumentError) { hold.pass("somebody", 60) }
    assert hold.held?
    hold.release
  end

  def test_an_interrupted_wait_for_several_locks_leaves_every_queue
    b = Mortise::Lock.new(client, "b").acquire
    waiting = in_thread { several("a", "b", "c").acquire }
    eventually { server.waiters("c") == 1 }
    waiting.kill
    waiting.join
    eventually { %w[a b c].all? { |key| server.waiters(key).zero? } }
    b.release
  end

  def test_a_request_of_unknown_outcome_sends_leave_for_every_key
    several("warm").synchronize { nil }
    server.freeze
    assert_raises(Mortise::Unreachable) { several("a", "b").acquire(wait: 0) }
    server.thaw
    eventually { !server.held?("a") && !server.held?("b") }
  end

  def test_impossible_arguments_are_refused
    [[], nil, ["a", 7]].each { |keys| assert_raises(ArgumentError) { Mortise::Lock.new(client, keys) } }
    assert_raises(ArgumentError) { Mortise::ReadLock.new(client, %w[a b]) }
    assert_raises(Mortise::Refused) { several("a", "a").acquire }
  end
end

CLIENTS.each_key do |kind|
  name = "MultiLockBy#{kind.to_s.split('_').map(&:capitalize).join}Test"
  Object.const_set(name, Class.new(Minitest::Test) { include MultiLockTests }).const_set(:KIND, kind)
end
