# frozen_string_literal: true

# Connections of the locks' own, made with the settings of the user's client, and the threads behind them.

require "logger"
require "socket"

module Mortise
  BATCH = 1_000 # commands that are sent before their replies are read
  TIMEOUT = 2.0 # seconds without a reply after which everything in flight on a connection is unknown
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

    # Waits for at most so many milliseconds, and returns whether it has happened.
    def wait(ms)
      ends = Mortise.now + ms
      @mutex.synchronize do
        while !@set && (left = ends - Mortise.now).positive?
          @condition.wait(@mutex, [left, TICK].min / 1000)
        end
        @set
      end
    end
  end

  # Connections of the locks' own by redis-client, which is also below redis-rb 5 and later.
  class ByRedisClient
    def initialize(config)
      @config = config
    end

    # Clients of equal settings share a session.
    def identity
      place = @config.sentinel? ? watched : @config.server_url
      [place, @config.db, @config.username, @config.password, @config.ssl_params, @config.id]
    end

    def open
      ::RedisClient.new(@config, connect_timeout: [@config.connect_timeout || TIMEOUT, TIMEOUT].min,
                                 write_timeout: TIMEOUT, read_timeout: TIMEOUT)
    end

    # The replies, which may take so many seconds longer than usual.
    def exchange(client, commands, seconds = 0)
      client.read_timeout = TIMEOUT + seconds
      client.pipelined(exception: false) { |pipeline| commands.each { |command| pipeline.call_once_v(command) } }
    end

    def errors
      [::RedisClient::Error]
    end

    # Whether this is the server's answer: a reply, or raised because it refused the connection.
    def said?(error)
      [::RedisClient::CommandError, ::RedisClient::ReadOnlyError, ::RedisClient::MasterDownError].any? { |kind| kind === error }
    end

    # Whether nothing was sent.
    def unsent?(error)
      error.is_a?(::RedisClient::CannotConnectError)
    end

    private

    # What Sentinel watches. The address is its answer, and not asked here.
    def watched
      sentinels = @config.sentinels.map { |sentinel| [sentinel.server_url, sentinel.username, sentinel.password] }
      [@config.name, @config.instance_variable_get(:@role), @config.ssl?, sentinels.sort_by(&:inspect)]
    end
  end

  # The same by redis-rb 4. `dup` of its client has the user's options as they were, before Sentinel's answers.
  class ByRedis4
    NAMING = %i[scheme host port path db username password ssl ssl_params sentinels role id].freeze

    def initialize(redis)
      @options = redis.dup._client.options
    end

    def identity
      @options.slice(*NAMING)
    end

    def open
      ::Redis::Client.new(@options.merge(reconnect_attempts: 0, inherit_socket: false, write_timeout: TIMEOUT, timeout: TIMEOUT,
                                         read_timeout: TIMEOUT, connect_timeout: [@options[:connect_timeout], TIMEOUT].min))
    end

    def exchange(client, commands, seconds = 0)
      client.with_socket_timeout(TIMEOUT + seconds) { client.process(commands) { commands.map { client.read } } }
    end

    def errors
      [::Redis::BaseError]
    end

    def said?(error)
      error.is_a?(::Redis::CommandError)
    end

    def unsent?(error)
      error.is_a?(::Redis::CannotConnectError)
    end
  end

  # What both kinds of connections have in common: replies and errors in one form.
  module Judging
    private

    def judge(reply)
      @driver.said?(reply) ? Refusal.new(reply.message) : reply
    end

    # What kept the server from replying, as a client's error tells it.
    def failed(error)
      @driver.said?(error) ? Refusal.new(error.message) : Failed.new(error, @driver.unsent?(error))
    end

    # These errors and no others: a thread may be interrupted by any.
    def errors
      [*@driver.errors, IOError, SystemCallError, SocketError]
    end

    def shut(connection)
      connection&.close
    rescue StandardError
      nil # it is gone either way
    end
  end

  # One connection that all threads share. The thread whose turn it is sends, in one pipeline, the requests of all, and reads the
  # replies. It never sends anything twice. The block is called when the connection was lost: the server may be another one by now.
  class Wire
    include Judging
    Job = Struct.new(:commands, :replies)

    def initialize(driver, &lost)
      @driver, @lost, @turn, @jobs = driver, lost, Mutex.new, Thread::Queue.new
    end

    # The replies: what the server replied, a `Refusal` for an error, or a `Failed` for each.
    def call(*commands)
      job = Job.new(commands)
      Thread.handle_interrupt(Object => :on_blocking) do
        @jobs << job
        @turn.synchronize { exchange until job.replies }
      end
      job.replies
    end

    def open?
      !@connection.nil?
    end

    def hang_up
      connection, @connection = @connection, nil
      shut(connection)
    end

    private

    def exchange
      batch = Array.new(@jobs.size.clamp(1, BATCH)) { @jobs.pop }
      failure = Failed.new(nil, false)
      @connection ||= @driver.open
      replies = @driver.exchange(@connection, batch.flat_map(&:commands)).map { |reply| judge(reply) }
      lose if replies.any? { |reply| reply.is_a?(Refusal) && reply.code == "READONLY" }
      batch.each { |job| job.replies = replies.shift(job.commands.size) }
    rescue *errors => error
      failure = failed(error)
    ensure
      Mortise.uninterrupted do
        lose unless batch&.all?(&:replies) # another thread's exception, too, leaves replies unread
        batch&.each { |job| job.replies ||= Array.new(job.commands.size, failure) }
      end
    end

    def lose
      hang_up
      @lost&.call
    end
  end

  # Connections on which commands wait, one for each thread that waits. A few stay open for the next.
  class Waits
    include Judging
    MOST_IDLE = 32

    def initialize(driver)
      @driver, @mutex, @idle, @busy = driver, Mutex.new, [], []
    end

    def any?
      @busy.any?
    end

    # The reply to a command that the server may keep waiting for so many milliseconds. A thread that is interrupted closes its
    # connection, which ends the wait at the server.
    def call(command, limit)
      Thread.handle_interrupt(Object => :on_blocking) do
        connection, reply = @mutex.synchronize { (@idle.pop || @driver.open).tap { |taken| @busy << taken } }, Failed.new
        begin
          reply = judge(@driver.exchange(connection, [command], [limit, LONGEST].min / 1000.0).first)
        rescue *errors => error
          reply = failed(error)
        ensure
          Mortise.uninterrupted { give_back(connection, reply) }
        end
        reply
      end
    end

    # Closes all connections. Those who wait on them get a `Failed`.
    def hang_up
      @mutex.synchronize { [*@busy, *@idle.pop(@idle.size)] }.each { |connection| shut(connection) }
    end

    private

    # A connection whose reply was not read, or whose server may be another one by now, is of no further use.
    def give_back(connection, reply)
      kept = @mutex.synchronize do
        of_use = @busy.delete(connection) && (reply.nil? || reply.is_a?(Integer)) && @idle.size < MOST_IDLE
        @idle << connection if of_use
      end
      shut(connection) unless kept
    end
  end

  # Work in the background: a thread that starts when there is some, and ends a while after there is none.
  class Worker
    def initialize(name, work, busy)
      @name, @work, @busy, @mutex, @event = name, work, busy, Mutex.new, Event.new
    end

    def wake(urgent: true)
      @event.set if urgent
      # A thread begins with what this one puts off, and would not end with the process.
      @mutex.synchronize { @thread = Thread.new { Thread.handle_interrupt(Object => :immediate) { run } } unless @thread&.alive? }
    end

    def wait(ms)
      @event.wait(ms)
    end

    private

    def run
      Thread.current.name = @name
      Thread.current.report_on_exception = false
      loop do
        @event.clear
        @busy.call ? @work.call : wait(TICK)
        break if @mutex.synchronize { idle? and (@thread = nil).nil? }
      rescue StandardError => error
        Mortise.logger.error("a lock's background work failed and goes on: #{error.full_message}")
        sleep 1
      end
    end

    def idle?
      !@event.set? && !@busy.call
    end
  end
end
