# frozen_string_literal: true

# Connections of the locks' own, made with the settings of the user's client, and the threads behind them.

require "logger"
require "socket"

module Mortise
  BATCH = 1_000 # commands that are sent before their replies are read
  TIMEOUT = 2.0 # seconds without a reply after which everything in flight on a connection is unknown
  BEAT = 5_000 # ms after which the server has to prove that it still answers those who wait
  LATE = 1_000 # ms past a waiter's limit in which its answer may still arrive
  LONGEST = 1e10 # ms, for no limit
  TICK = 1_000 # ms after which background work checks the clock again at the latest
  # Clocks that run while the machine sleeps, on Linux and macOS; other systems have the monotonic one.
  CLOCK = Process.const_get(%i[CLOCK_BOOTTIME CLOCK_MONOTONIC_RAW CLOCK_MONOTONIC].find { |name| Process.const_defined?(name) })

  # A reply that did not come, or that is of no use now. `known`: the request surely changed nothing. `cause`: the client's error,
  # the server's text, or the `Refusal` of a later command without which the outcome stays unknown.
  Failed = Struct.new(:cause, :known)

  # An error that the server replied.
  Refusal = Struct.new(:text) do
    def code
      text[/\A\S+/]
    end

    # The text, with what to do where the server's own words do not say it.
    def explained
      return text unless text.match?(/\AERR unknown command .?LOCK\./i)

      "#{text}: the server has not loaded the Mortise module; load it by \"loadmodule …/libmortise.so\" in redis.conf, or by MODULE LOAD"
    end
  end

  class << self
    attr_writer :logger

    def logger
      @logger ||= Logger.new($stderr, level: Logger::WARN, progname: "mortise")
    end

    # A logger that fails stops nothing, and hides no error.
    def log(level, text)
      logger.public_send(level, text)
    rescue StandardError
      nil
    end

    # Milliseconds that do not step with the wall clock.
    def now
      Process.clock_gettime(CLOCK, :float_millisecond)
    end

    # Carries this out whole: a Thread#raise, Thread#kill or Timeout takes effect after it.
    def uninterrupted(&block)
      Thread.handle_interrupt(Object => :never, &block)
    end
  end

  # Something that happens once, or again after `clear`. Threads wait for it, and fibers if a scheduler runs them.
  class Event
    def initialize
      @mutex, @condition, @set = Mutex.new, ConditionVariable.new, false
    end

    def set
      @mutex.synchronize { @set = true and @condition.broadcast }
    end

    def clear
      @mutex.synchronize { @set = false }
    end

    def set?
      @set
    end

    # Waits for at most so many milliseconds, and may return earlier.
    def wait(ms)
      @mutex.synchronize { @condition.wait(@mutex, ms / 1000.0) unless @set }
    end
  end

  # Connections of the locks' own by redis-client, which is also below redis-rb 5 and later, and by its Ruby driver: hiredis-client does
  # not notice that another thread closes the connection, so a wait would not end.
  class ByRedisClient
    def initialize(config)
      unless ::RedisClient.instance_method(:pipelined).parameters.include?(%i[key exception])
        raise ArgumentError, "a lock needs redis-client 0.22 or later, not #{::RedisClient::VERSION}"
      end

      @config = config.dup
      @config.instance_variable_set(:@driver, ::RedisClient.driver(:ruby))
      @config.instance_variable_set(:@ssl_context, nil) # which the other driver made
      # The library asks again by itself, within its limits.
      @config.define_singleton_method(:retry_connecting?) { |_attempt, error| super(1 << 30, error) }
      # A connection that is made anew without a word would hide from a probe that the old one is dead.
      @config.define_singleton_method(:idle_timeout) { nil }
    end

    # Clients of equal settings share a session.
    def identity
      settings = [@config.db, @config.username, @config.password, @config.ssl_params, @config.id]
      return [@config.server_url, *settings] unless @config.sentinel?

      # What Sentinel watches. The address is its answer, and not asked here.
      sentinels = @config.sentinels.map { |sentinel| [sentinel.server_url, sentinel.username, sentinel.password] }
      [@config.name, @config.instance_variable_get(:@role), @config.ssl?, sentinels.sort_by(&:inspect), *settings]
    end

    def open
      ::RedisClient.new(@config, connect_timeout: [@config.connect_timeout || TIMEOUT, TIMEOUT].min,
                                 write_timeout: TIMEOUT, read_timeout: TIMEOUT)
    end

    # The replies, which may take so many seconds.
    def exchange(client, commands, seconds = TIMEOUT)
      client.read_timeout = seconds
      client.pipelined(exception: false) { |pipeline| commands.each { |command| pipeline.call_once_v(command) } }
    end

    # The client's errors by what they mean. said: the server's answer, a reply or raised because it refused the connection.
    # unsent: nothing was sent. late: the server is silent.
    def errors
      {
        all: ::RedisClient::Error,
        said: [::RedisClient::CommandError, ::RedisClient::ReadOnlyError, ::RedisClient::MasterDownError],
        unsent: ::RedisClient::CannotConnectError,
        late: ::RedisClient::TimeoutError
      }
    end
  end

  # The same by redis-rb 4. `dup` of its client has the user's options as they were, before Sentinel's answers. Its hiredis driver does
  # not notice that another thread closes the connection, so a wait would not end.
  class ByRedis4
    NAMING = %i[scheme host port path db username password ssl ssl_params sentinels role id].freeze

    def initialize(redis)
      @options = redis.dup._client.options
      # Loading a driver makes it the default for the whole program.
      ::Redis::Connection.drivers.rotate!(-1) if require "redis/connection/ruby"
      @driver = Class.new(::Redis::Connection::Ruby) do
        # Also ends the wait of another thread, which the driver's own does not do by TLS, nor at all before redis-rb 4.2.3.
        def disconnect
          @sock.to_io.shutdown
          @sock.to_io.close
        rescue StandardError
          nil # it is gone either way
        ensure
          super
        end
      end
    end

    def identity
      @options.slice(*NAMING)
    end

    def open
      ::Redis::Client.new(@options.merge(driver: @driver, reconnect_attempts: 0, inherit_socket: false,
                                         timeout: TIMEOUT, write_timeout: TIMEOUT, read_timeout: TIMEOUT,
                                         connect_timeout: [@options[:connect_timeout], TIMEOUT].min))
                     .tap { |client| client.define_singleton_method(:close) { disconnect } } # which redis-rb 4.0 does not have
    end

    def exchange(client, commands, seconds = TIMEOUT)
      client.with_socket_timeout(seconds) { client.process(commands) { commands.map { client.read } } }
    end

    def errors
      { all: ::Redis::BaseError, said: [::Redis::CommandError], unsent: ::Redis::CannotConnectError, late: ::Redis::TimeoutError }
    end
  end

  # Connections to one server: a thread has one for itself while it sends or waits. A few stay open for the next. None sends anything
  # twice.
  class Connections
    MOST_IDLE = 32

    def initialize(driver)
      @driver, @mutex, @idle, @waiting, @probing = driver, Mutex.new, [], [], Mutex.new
      @errors = driver.errors
      # Only these: an interrupt may raise any other error in a thread.
      @broken = [@errors[:all], IOError, SystemCallError, SocketError, *(OpenSSL::SSL::SSLError if defined?(OpenSSL::SSL))]
    end

    def waiting?
      @waiting.any?
    end

    # The replies: what the server replied, a `Refusal` for an error, or a `Failed` for each. `wait`: for so many milliseconds the server may
    # keep the last one waiting. A thread that is interrupted closes its connection, which ends the wait at the server.
    def call(*commands, wait: 0)
      Thread.handle_interrupt(Object => :on_blocking) do
        connection = take(wait)
        replies = @driver.exchange(connection, commands, [[wait + LATE, LONGEST].min / 1000.0, TIMEOUT].max).map { |reply| judge(reply) }
      rescue *@broken => error
        wait.zero? && error.is_a?(@errors[:late]) ? hang_up : shut_idle
        [failed(error, connection.nil?)] * commands.size
      ensure
        Mortise.uninterrupted { give_back(connection, replies) }
      end
    end

    # Ends all waits if the server does not answer any more, so that they ask where the primary is by then, and returns what failed. It is
    # asked once in a while, over a connection that was made before they began: another one may lead to another server by now.
    def probe
      return if @prober && Mortise.now - @probed < BEAT

      @probed = Mortise.now
      # On a thread of its own: an interrupt of this one ends neither the probe nor the waits of others.
      Thread.new do
        Thread.current.report_on_exception = false
        @probing.synchronize do
          @prober = shut(@prober) unless waiting? # it may be dead by now
          @driver.exchange(@prober ||= @driver.open, [["PING"]])
          nil
        end
      rescue *@broken => error
        hang_up
        failed(error, true)
      end.value
    end

    # Closes all connections on which somebody waits, who gets a `Failed`, and those that nobody uses: a server that is gone without a word
    # breaks none on which nothing is sent, and an address may be another server's by now.
    def hang_up
      shut_idle
      prober, @prober = @prober, nil
      [prober, *@mutex.synchronize { @waiting.dup }].each { |connection| shut(connection) }
    end

    private

    # An idle connection that still works, or a new one. A silent server is an error: it would not reply on a new one either.
    def take(wait)
      idle, since = @mutex.synchronize { @idle.pop }
      begin
        works = idle && (Mortise.now - since < TICK || @driver.exchange(idle, [["PING"]]))
      rescue *@broken => error
        raise if error.is_a?(@errors[:late])

        shut_idle # the others will not work either
      end
      @mutex.synchronize { (works ? idle : @driver.open).tap { |taken| @waiting << taken if wait.positive? } }
    ensure
      shut(idle) unless works
    end

    # A connection whose replies were not read, or whose server is no primary any more, is of no further use.
    def give_back(connection, replies)
      demoted = replies&.any? { |reply| reply.is_a?(Refusal) && %w[READONLY UNBLOCKED].include?(reply.code) }
      kept = @mutex.synchronize do
        @waiting.delete(connection)
        @idle << [connection, Mortise.now] if replies && !demoted && @idle.size < MOST_IDLE
      end
      shut(connection) unless kept
      hang_up if demoted
    end

    def shut_idle
      @mutex.synchronize { @idle.pop(@idle.size) }.each { |connection, _since| shut(connection) }
    end

    def shut(connection)
      connection&.close
      nil
    rescue StandardError
      nil # it is gone either way
    end

    # A reply, or a `Refusal` for a client's error that is the server's answer.
    def judge(reply)
      @errors[:said].any? { |kind| kind === reply } ? Refusal.new(reply.message) : reply
    end

    # What kept the server from replying, as a client's error tells it.
    def failed(error, unsent)
      said = judge(error)
      said.is_a?(Refusal) ? said : Failed.new(error, unsent || error.is_a?(@errors[:unsent]))
    end
  end

  # Work in the background: a thread that starts when there is some, and ends a while after there is none. `work` returns the milliseconds
  # until it is called again, or earlier by `wake`.
  class Worker
    def initialize(name, work, busy)
      @name, @work, @busy, @mutex, @event = name, work, busy, Mutex.new, Event.new
    end

    def wake(urgent: true)
      @event.set if urgent
      # A thread begins with what this one puts off, and would not end with the process.
      @mutex.synchronize { @thread = Thread.new { Thread.handle_interrupt(Object => :immediate) { run } } unless @thread&.alive? }
    end

    private

    def run
      Thread.current.name = @name
      loop do
        @event.clear
        @event.wait(@busy.call ? @work.call : TICK)
        break unless @mutex.synchronize { @event.set? || @busy.call || (@thread = nil) }
      rescue StandardError => error
        Mortise.log(:error, "a lock's background work failed and goes on: #{error.full_message}")
        sleep 1
      end
    end
  end
end
