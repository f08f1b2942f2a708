# frozen_string_literal: true

# Connections that break, servers that fall silent, restart or are replaced, and fibers.

require "openssl"
require_relative "helper"
require_relative "scheduler"

class TroubleTest < Minitest::Test
  include Served

  def client(port = server.port, **options)
    Redis.new(host: "127.0.0.1", port: port, **options)
  end

  def with_relay(to = server)
    relay = Relay.new(to.port)
    yield relay, client(relay.port)
  ensure
    relay.pass_all
    Mortise.close(timeout: 30)
    relay.close
  end

  def with_server(*options, **more)
    yield own = TestServer.new(*options, **more)
  ensure
    Mortise.close(timeout: 30)
    own.close
  end

  def test_a_request_that_ran_and_got_no_reply_leaves_nothing
    with_relay do |relay, far|
      Mortise::Lock.new(far, "other").synchronize { nil } # so that it is connected
      relay.hold_back(:replies)
      asking = in_thread { Mortise::Lock.new(far, "stock", lease: 600).acquire(wait: 30) }
      eventually { server.held?("stock") }
      relay.cut
      relay.pass_all
      hold = asking.value # the second attempt
      assert_equal [hold.owner], server.holds("stock").map { |held| held["owner"] }
      hold.release
      refute server.held?("stock")
    end
  end

  def test_a_server_that_does_not_reply_blocks_nobody_for_long_and_nothing_is_left
    with_relay do |relay, far|
      Mortise::Lock.new(far, "other").synchronize { nil }
      relay.hold_back(:replies)
      asking = in_thread { Mortise::Lock.new(far, "stock", lease: 600).acquire(wait: 0.5) }
      eventually { server.held?("stock") }
      assert_raises(Mortise::Unreachable) { asking.value }
      relay.pass_all
      eventually { !server.held?("stock") }
    end
  end

  def test_a_server_that_refuses_writes_for_now_is_asked_again
    with_server do |own|
      admin = client(own.port)
      admin.config(:set, "min-replicas-to-write", 1)
      asking = in_thread { Mortise::Lock.new(client(own.port), "stock").acquire(wait: 30) }
      eventually { admin.info("errorstats").key?("errorstat_NOREPLICAS") }
      admin.config(:set, "min-replicas-to-write", 0)
      asking.value.release
    end
  end

  # Closes what the library keeps idle, as a server, a firewall or a load balancer does after a while.
  def close_idle
    sleep Mortise::TICK / 1000.0 # it counts as idle from then on
    server.clients.grep(/ name=idle /).grep_v(/cmd=lock.acquire/).each { |line| server.call("CLIENT", "KILL", "ID", line[/id=(\d+)/, 1]) }
    eventually { server.clients.grep(/ name=idle /).grep_v(/cmd=lock.acquire/).empty? }
  end

  def test_a_connection_that_was_closed_while_it_was_idle_fails_nothing
    lock = Mortise::Lock.new(client(id: "idle"), "stock", lease: 600, renew: false)
    hold = lock.acquire(wait: 0)
    work = [-> { hold.guard("SET", "data", 1) }, -> { hold.pass("heir", 600) }, -> { lock.take_over("heir").release },
            -> { lock.acquire(wait: 0, owner: "idler").release }, -> { refute lock.locked? }]
    work.each do |command|
      close_idle
      command.call
    end
  end

  def test_a_connection_that_breaks_ends_no_wait_on_another
    far = client(id: "breaks") # a session of its own
    held = Mortise::Lock.new(client, "stock").acquire
    waiting = in_thread { Mortise::Lock.new(far, "stock").acquire }
    eventually { server.waiters("stock") == 1 }
    owner = server.queue("stock").first["owner"]
    driver = Mortise::Session.of(far).instance_variable_get(:@connections).instance_variable_get(:@driver)
    driver.define_singleton_method(:exchange) do |connection, commands, *rest|
      commands[0][0] == "LOCK.INFO" ? raise(Errno::ECONNRESET) : super(connection, commands, *rest)
    end
    assert_raises(Mortise::Unreachable) { Mortise::Lock.new(far, "other").locked? }
    held.release
    assert_equal owner, waiting.value.owner
  end

  def test_a_request_to_a_server_that_fell_silent_while_the_connection_was_idle_was_not_sent
    with_relay do |relay, far|
      hold = Mortise::Lock.new(far, "stock", lease: 600, renew: false).acquire(wait: 0)
      sleep Mortise::TICK / 1000.0
      relay.hold_back(:replies)
      assert_raises(Mortise::Unreachable) { hold.pass("somebody", 600) }
      assert hold.held?
    end
  end

  def test_a_release_without_a_reply_is_followed_by_leave
    with_relay do |relay, far|
      hold = Mortise::Lock.new(far, "stock", lease: 600).acquire
      relay.hold_back(:requests)
      relay.cut
      releasing = in_thread { hold.release }
      releasing.value
      assert server.held?("stock")
      relay.pass_all
      eventually { !server.held?("stock") }
    end
  end

  def test_a_pass_without_a_reply_is_reported_and_both_names_leave
    with_relay do |relay, far|
      hold = Mortise::Lock.new(far, "stock", lease: 600).acquire
      relay.hold_back(:replies)
      assert_raises(Mortise::Unreachable) { hold.pass("somebody", 600) }
      refute hold.held?
      relay.pass_all
      eventually { !server.held?("stock") }
    end
  end

  def test_closing_waits_for_a_release_or_a_refused_pass_in_flight_on_another_thread
    [:release, ->(hold) { assert_raises(Mortise::Refused) { hold.pass(hold.owner, 600) } }].each do |work|
      with_relay do |relay, far|
        hold = Mortise::Lock.new(far, "stock", lease: 600).acquire
        relay.hold_back(:requests)
        working = in_thread { work.to_proc.call(hold) }
        eventually { !hold.held? }
        closing = in_thread { Mortise.close(far, timeout: 60) }
        refute closing.join(0.1), "it did not wait"
        relay.pass_all
        assert closing.value
        refute server.held?("stock")
        working.value
      end
    end
  end

  def test_what_is_to_be_left_is_over_where_the_key_is_of_another_type_by_then
    with_relay do |relay, far|
      hold = Mortise::Lock.new(far, "stock", lease: 600).acquire
      relay.hold_back(:requests)
      hold.release
      server.call("SET", "stock", "bread")
      relay.cut
      relay.pass_all
      assert Mortise.close(far, timeout: 30)
    end
  end

  def test_a_loss_is_reported_at_the_deadline_when_the_server_is_silent
    with_relay do |relay, far|
      hold = Mortise::Lock.new(far, "stock", lease: 1).acquire
      relay.hold_back(:requests)
      assert hold.wait_lost(30)
      relay.pass_all
      assert_raises(Mortise::Lost) { hold.release }
    end
  end

  def test_a_waiter_whose_connection_breaks_asks_again
    with_relay do |relay, far|
      held = Mortise::Lock.new(client, "stock").acquire
      waiting = in_thread { Mortise::Lock.new(far, "stock").acquire }
      eventually { server.waiters("stock") == 1 }
      owner = server.queue("stock").first["owner"]
      relay.cut
      eventually { server.queue("stock").any? { |waiter| waiter["owner"] != owner } }
      held.release
      refute_equal owner, waiting.value.owner
    end
  end

  # Calls the block with what was requested, and with what the server replies: that is what it returns, or raises.
  def through(&block)
    original = Mortise::Connections.instance_method(:call)
    Mortise::Connections.define_method(:call) { |*commands, **wait| block.call(commands, -> { original.bind_call(self, *commands, **wait) }) }
    @original = original
  end

  def restore
    original = @original
    Mortise::Connections.define_method(:call) { |*commands, **wait| original.bind_call(self, *commands, **wait) }
  end

  def test_a_renewal_counts_from_when_it_was_sent_however_late_its_reply_is
    lease, renewed = 3, nil
    through do |commands, real|
      next real.call unless commands.any? { |words| words[0] == "LOCK.RENEW" }
      next commands.map { Mortise::Failed.new("no answer") } if renewed

      renewed = Mortise.now
      real.call.tap { sleep lease / 2.0 }
    end
    hold = Mortise::Lock.new(client, "stock", lease: lease).acquire
    eventually { renewed }
    sleep [0, (renewed - Mortise.now) / 1000 + lease].max
    refute hold.held?, "it counts from the reply"
  ensure
    restore
  end

  def test_a_name_leaves_though_its_leave_fails_several_times
    leaves = 0
    through do |commands, real|
      lost = commands.any? { |words| words[0] == "LOCK.LEAVE" } && (leaves += 1) <= 3
      lost ||= commands.any? { |words| words[0] == "LOCK.RELEASE" }
      lost ? commands.map { Mortise::Failed.new("no answer") } : real.call
    end
    Mortise::Lock.new(client, "stock", lease: 600).acquire.release
    eventually { !server.held?("stock") }
    assert_operator leaves, :>=, 4
  ensure
    restore
  end

  def test_a_given_name_whose_request_got_no_reply_leaves_and_asks_no_more
    asked = 0
    through do |commands, real|
      next real.call unless commands[0][0] == "LOCK.ACQUIRE" && (asked += 1) == 1

      real.call.map { Mortise::Failed.new("no answer") }
    end
    assert_raises(Mortise::Unreachable) { Mortise::Lock.new(client, "stock").acquire(wait: 30, owner: "unanswered") }
    assert_equal 1, asked
    eventually { !server.held?("stock") }
  ensure
    restore
  end

  def test_a_name_that_has_to_leave_gets_nothing
    silent = true
    through do |commands, real|
      lost = silent && commands.any? { |words| %w[LOCK.LEAVE LOCK.RELEASE].include?(words[0]) }
      lost ? commands.map { Mortise::Failed.new("no answer") } : real.call
    end
    lock = Mortise::Lock.new(client, "stock", lease: 600)
    (hold = lock.acquire(owner: "leaver")).release
    assert_raises(Mortise::Unreachable) { lock.acquire(wait: 0, owner: "leaver") }
    assert_raises(Mortise::Unreachable) { lock.resume("leaver", hold.token) }
    other = lock.take_over("leaver")
    assert_raises(Mortise::Unreachable) { other.pass("leaver", 60) }
    assert other.held?
  ensure
    silent = false
    restore
  end

  def test_a_server_without_the_module_is_reported_at_once_with_what_to_do
    with_server(plain: true) do |own|
      [0, nil].each do |wait|
        error = assert_raises(Mortise::Refused) { Mortise::Lock.new(client(own.port), "stock").acquire(wait: wait) }
        assert_match(/loadmodule/, error.message)
      end
    end
  end

  def test_a_waiter_asks_again_after_a_restart_of_the_server
    with_server do |own|
      held = Mortise::Lock.new(client(own.port), "stock", lease: 5, renew: false).acquire
      waiting = in_thread { Mortise::Lock.new(client(own.port, id: "other"), "stock").acquire }
      eventually { own.waiters("stock") == 1 }
      own.kill
      own.start
      waiting.value.release
      assert held.wait_lost(30)
    end
  end

  def test_an_unreachable_server_is_reported_as_such
    nowhere = Mortise::Lock.new(client(1), "stock")
    [0, 0.3].each do |wait|
      error = assert_raises(Mortise::Unreachable) { nowhere.acquire(wait: wait) }
      assert_kind_of StandardError, error.cause
    end
    assert_raises(Mortise::Unreachable) { nowhere.locked? }
    assert Mortise.close(client(1))
  end

  def test_a_pass_for_which_no_connection_can_be_made_is_unreachable_and_the_lock_held_as_before
    with_server do |own|
      first, hold = Array.new(2) { |number| Mortise::Lock.new(client(own.port), "stock:#{number}", lease: 600, renew: false).acquire }
      own.kill
      assert_raises(Mortise::Unreachable) { first.pass("somebody", 60) }
      assert_raises(Mortise::Unreachable) { hold.pass("somebody", 60) }
      assert hold.held?
      own.start
    end
  end

  def test_an_older_redis_client_is_refused_with_the_version_that_is_needed
    skip "needs redis-client" unless defined?(RedisClient)
    original = RedisClient.instance_method(:pipelined)
    RedisClient.define_method(:pipelined) { |&block| original.bind_call(self, &block) }
    far = client(id: "older")
    error = assert_raises(ArgumentError) { Mortise::Lock.new(far, "stock").acquire }
    assert_match(/0\.22/, error.message)
  ensure
    RedisClient.define_method(:pipelined, original) if original
  end

  def test_the_locks_connections_are_by_the_ruby_driver
    other = Class.new(defined?(RedisClient) ? RedisClient::RubyConnection : Redis::Connection::Ruby)
    def other.new(*) = raise("hiredis ignores that its connection is closed")
    far = defined?(RedisClient) ? RedisClient.config(host: "127.0.0.1", port: server.port, driver: other) : client(driver: other)
    Mortise::Lock.new(far, "stock").synchronize { |hold| assert hold.held? }
  end

  def test_a_wait_ends_with_the_oldest_redis_rb_4
    skip "needs redis-rb 4" if defined?(RedisClient)
    close, socket = Redis::Client.instance_method(:close), Redis::Connection::TCPSocket
    Redis::Client.remove_method(:close) # which 4.0 does not have
    socket.define_method(:wait_readable) { |timeout = nil| IO.select([self], nil, nil, timeout) } # as before 4.2.3
    held = Mortise::Lock.new(client, "stock").acquire
    far = client(id: "selecting")
    waiting = in_thread { Mortise::Lock.new(far, "stock").acquire }
    eventually { server.waiters("stock") == 1 }
    Mortise.close(far)
    assert_raises(Mortise::Unreachable) { waiting.value }
    held.release
  ensure
    socket&.remove_method(:wait_readable)
    Redis::Client.define_method(:close, close) if close
  end

  # A server with TLS, and its port for that. The certificate is its own.
  def with_tls
    Dir.mktmpdir do |folder|
      key, certificate = OpenSSL::PKey::RSA.new(2048), OpenSSL::X509::Certificate.new
      certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=localhost")
      certificate.public_key, certificate.serial = key.public_key, 1
      certificate.not_before, certificate.not_after = Time.now - 86_400, Time.now + 86_400
      certificate.sign(key, "SHA256")
      File.write("#{folder}/key", key.to_pem)
      File.write("#{folder}/certificate", certificate.to_pem)
      files = %w[cert ca-cert].flat_map { |kind| ["--tls-#{kind}-file", "#{folder}/certificate"] }
      port = TestServer.claim_port
      own = TestServer.new("--tls-port", port, "--tls-key-file", "#{folder}/key", *files, "--tls-auth-clients", "no") rescue skip("no TLS")
      yield own, port
    ensure
      own&.thaw
      Mortise.close(timeout: 0.1)
      own&.close
    end
  end

  def test_a_wait_by_tls_ends_though_the_server_is_silent
    with_tls do |own, port|
      kinds = defined?(RedisClient) ? [{ ssl: true }] : [{ ssl: true }, { scheme: "rediss" }]
      clients = kinds.map { |kind| client(port, **kind, ssl_params: { verify_mode: OpenSSL::SSL::VERIFY_NONE }) }
      Mortise::Lock.new(client(own.port), "stock", lease: 600, renew: false).acquire
      waiting = clients.map { |far| in_thread { Mortise::Lock.new(far, "stock").acquire } }
      eventually { own.waiters("stock") == clients.size }
      own.freeze
      clients.each { |far| Mortise.close(far, timeout: 0.1) }
      waiting.each { |thread| assert_raises(Mortise::Unreachable) { thread.value } }
    end
  end

  def test_a_server_with_an_unknown_certificate_is_unreachable
    with_tls do |_own, port|
      error = assert_raises(Mortise::Unreachable) { Mortise::Lock.new(client(port, ssl: true), "stock").acquire(wait: 0) }
      assert_match(/certificate verify failed/, error.message)
    end
  end

  def test_the_clients_own_retries_do_not_apply
    skip "needs redis-client" unless defined?(RedisClient)
    config = RedisClient.config(host: "127.0.0.1", port: 1, reconnect_attempts: [20])
    began = Mortise.now
    assert_raises(Mortise::Unreachable) { Mortise::Lock.new(config, "stock").acquire(wait: 0) }
    assert_operator Mortise.now - began, :<, 15_000
  end

  def test_a_wait_for_a_server_that_was_silent_from_the_beginning_ends_at_most_a_second_late
    with_server do |own|
      own.freeze
      began = Mortise.now
      assert_raises(Mortise::Unreachable) { Mortise::Lock.new(client(own.port), "stock").acquire(wait: 3) }
      assert_operator Mortise.now - began, :<, 5_500
    ensure
      own.thaw
    end
  end

  def test_a_wait_asks_a_server_that_does_not_answer_its_probe_for_nothing
    with_relay do |relay, far|
      relay.hold_back(:replies)
      asked = false
      through do |commands, real|
        asked ||= commands[0][0] == "LOCK.ACQUIRE"
        real.call
      end
      assert_raises(Mortise::Unreachable) { Mortise::Lock.new(far, "stock").acquire(wait: 0.2) }
      refute asked
    end
  ensure
    restore
  end

  def test_a_wait_is_not_ended_by_a_probe_whose_connection_was_closed_before_it
    far = client(id: "probing")
    lock = Mortise::Lock.new(far, "stock")
    lock.synchronize(wait: 1) { nil }
    server.clients.grep(/ name=probing .*cmd=ping/).each { |line| server.call("CLIENT", "KILL", "ID", line[/id=(\d+)/, 1]) }
    held = Mortise::Lock.new(client, "stock").acquire
    connections = Mortise::Session.of(far).instance_variable_get(:@connections)
    connections.instance_variable_set(:@probed, idle_since = Mortise.now - Mortise::BEAT)
    waiting = in_thread { lock.acquire(owner: "waiter") } # which fails if its wait is ended
    eventually { server.waiters("stock") == 1 && connections.instance_variable_get(:@probed) > idle_since }
    held.release
    waiting.value.release
  end

  # A server with a held lock, for which another thread waits, and that froze while a third thread was interrupted in its probe.
  def with_interrupted_probe
    with_server do |own|
      with_relay(own) do |relay, far|
        held = Mortise::Lock.new(client(own.port), "stock").acquire
        waiting = in_thread { Mortise::Lock.new(far, "stock").acquire(owner: "bystander") } # which fails if its wait is ended
        eventually { own.waiters("stock") == 1 }
        own.freeze
        Mortise::Session.of(far).instance_variable_get(:@connections).instance_variable_set(:@probed, Mortise.now - Mortise::BEAT)
        assert_raises(Timeout::Error) { Timeout.timeout(0.1) { Mortise::Lock.new(far, "other").acquire } }
        yield own, relay, waiting, held
      ensure
        own.thaw
      end
    end
  end

  def test_a_thread_that_is_interrupted_during_its_probe_ends_no_wait_of_another
    with_interrupted_probe do |own, _relay, waiting, held|
      own.thaw
      held.release
      assert_equal "bystander", waiting.value.owner
    end
  end

  def test_a_thread_that_is_interrupted_during_its_probe_hides_no_silence
    with_interrupted_probe do |_own, relay, waiting, _held|
      relay.lead_to(server.port) # the wait stays at the old server
      assert_raises(Mortise::Unreachable) { waiting.value }
    end
  end

  def test_a_clients_idle_timeout_hides_no_silence
    skip "needs redis-client 0.27" unless defined?(RedisClient) && RedisClient.method_defined?(:idle_timeout)
    with_server do |own|
      with_relay(own) do |relay, _far|
        far = RedisClient.config(host: "127.0.0.1", port: relay.port, idle_timeout: 0.01)
        Mortise::Lock.new(client(own.port), "stock", renew: false).acquire
        waiting = in_thread { Mortise::Lock.new(far, "stock").acquire }
        eventually { own.count("waiters") == 1 }
        own.freeze
        relay.lead_to(server.port) # the wait stays at the old server
        waiting.value.release
      ensure
        own.thaw
      end
    end
  end

  def test_a_wait_that_begins_while_its_locks_are_closed_ends
    far = client(id: "closing")
    held = Mortise::Lock.new(client, "stock", lease: 600, renew: false).acquire
    lock, closing = Mortise::Lock.new(far, "stock"), -> { Mortise.close(far) }
    lock.define_singleton_method(:attempt) { |*arguments| closing.call and super(*arguments) }
    assert_raises(Mortise::Unreachable) { in_thread { lock.acquire }.value }
    held.release
  end

  def test_a_wait_that_connects_while_its_locks_are_closed_ends
    far = client(id: "connecting")
    held = Mortise::Lock.new(client, "stock", lease: 600, renew: false).acquire
    connections = Mortise::Session.of(far).instance_variable_get(:@connections)
    connections.instance_variable_get(:@driver).define_singleton_method(:exchange) do |connection, commands, *more|
      Mortise.close(far, timeout: 0.01) if commands.first.include?("WAIT")
      super(connection, commands, *more)
    end
    assert_raises(Mortise::Unreachable) { in_thread { Mortise::Lock.new(far, "stock").acquire }.value }
    held.release
  end

  def test_a_logger_that_fails_stops_no_renewals
    logger, Mortise.logger = Mortise.logger, Object.new
    gone, kept = %w[gone kept].map { |key| Mortise::Lock.new(client, key, lease: 3).acquire }
    server.call("DEL", "gone")
    eventually { gone.lost? }
    before = server.count("total_renewals")
    eventually(20) { server.count("total_renewals") >= before + 3 }
    assert kept.held?
  ensure
    Mortise.logger = logger
  end

  def test_a_wrong_password_is_refused_at_once
    with_server do |own|
      own.call("CONFIG", "SET", "requirepass", "right")
      began = Mortise.now
      assert_raises(Mortise::Refused) { Mortise::Lock.new(client(own.port, password: "wrong"), "stock").acquire(wait: 60) }
      assert_operator Mortise.now - began, :<, 30_000
      Mortise::Lock.new(client(own.port, password: "right"), "stock").synchronize { |hold| assert hold.held? }
    end
  end

  def watched(sentinel, **options)
    name = Redis::VERSION < "5" ? { url: "redis://locks" } : { name: "locks" }
    Redis.new(sentinels: [{ host: "127.0.0.1", port: sentinel.port }], role: :master, **name, **options)
  end

  def test_clients_of_the_same_sentinels_share_their_connections
    with_server do |primary|
      with_server(sentinel: "sentinel monitor locks 127.0.0.1 #{primary.port} 1\n") do |sentinel|
        5.times { Mortise::Lock.new(watched(sentinel, id: "many"), "stock").synchronize { nil } }
        assert_includes 1..2, primary.connections("many")
      end
    end
  end

  def test_a_waiter_is_granted_by_the_server_that_sentinel_promotes
    with_server do |primary|
      with_server("--replicaof", "127.0.0.1 #{primary.port}") do |replica|
        eventually { replica.info("replication")["master_link_status"] == "up" }
        watch = "sentinel monitor locks 127.0.0.1 #{primary.port} 1\n" \
                "sentinel down-after-milliseconds locks 1500\nsentinel failover-timeout locks 5000\n"
        with_server(sentinel: watch) do |sentinel|
          eventually { sentinel.call("SENTINEL", "REPLICAS", "locks").any? }
          Mortise::Lock.new(client(primary.port), "stock", lease: 4, renew: false).acquire
          followed = watched(sentinel)
          waiting = in_thread { Mortise::Lock.new(followed, "stock").acquire }
          eventually { primary.waiters("stock") == 1 }
          primary.freeze
          waiting.value.release
          assert_equal "master", replica.info("replication")["role"]
          assert Mortise.close(followed, timeout: 30)
        end
      end
    ensure
      primary.thaw
    end
  end

  def test_a_waiter_follows_a_fixed_address_to_the_new_primary
    with_server do |old|
      with_server do |new|
        with_relay(old) do |relay, far|
          Mortise::Lock.new(client(old.port), "stock", lease: 600, renew: false).acquire
          waiting = in_thread { Mortise::Lock.new(far, "stock").acquire }
          eventually { old.waiters("stock") == 1 }
          relay.lead_to(new.port) # no connection breaks
          old.call("REPLICAOF", "127.0.0.1", new.port)
          hold = waiting.value
          assert_equal [hold.owner], new.holds("stock").map { |held| held["owner"] }
          hold.release
        end
      end
    end
  end

  def test_fibers_of_one_thread_wait_for_each_other
    order = []
    in_thread do
      Fiber.set_scheduler(Scheduler.new)
      lock = Mortise::Lock.new(client, "stock")
      3.times do |number|
        Fiber.schedule do
          lock.synchronize do
            order << "in #{number}"
            sleep 0.02
            order << "out #{number}"
          end
        end
      end
    end.value
    assert_equal 6, order.size
    order.each_slice(2) { |enter, leave| assert_equal enter.delete_prefix("in"), leave.delete_prefix("out") }
  end

  # A new thread inherits deferred interrupts from its creator, so it would not end with the process.
  def test_a_process_ends_though_background_work_began_with_deferred_interrupts
    program = 'Mortise.uninterrupted { Mortise::Worker.new("work", -> { sleep 0.1 }, -> { true }).wake }; sleep 0.2'
    child = spawn(RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-r", "redis", "-r", "mortise/lock", "-e", program)
    ended = in_thread { Process.wait(child) }
    assert ended.join(30), "the process did not end"
  ensure
    Process.kill(:KILL, child) if ended&.alive?
  end
end
