# frozen_string_literal: true

# What the locks of one server share in a process: the requests, the renewals, and what has to be left. `lock.rb` is the public
# part, `wire.rb` has the connections.
#
# One rule stands above the others: *a hold whose state is unknown is never kept*. Every attempt has a name of its own. If its
# outcome is unknown, LOCK.LEAVE … FOR is repeated until the server replies, and whatever arrives late changes nothing.

require "securerandom"
require_relative "wire"

module Mortise
  LEAVE_FOR = 60_000 # ms in which what arrives late from a name that has left changes nothing
  LATER = %w[READONLY TRYAGAIN CLUSTERDOWN MASTERDOWN LOADING UNBLOCKED LEFT NOREPLICAS MISCONF BUSY].freeze

  # One server as a process sees it: who waits there, what is held there, and what has to be left there.
  class Session
    @making, @sessions, @found = Mutex.new, {}, ObjectSpace::WeakMap.new

    class << self
      # The session of a client: a Redis, a RedisClient, its config, or a ConnectionPool of these.
      def of(client)
        found = @found[client]
        return found if found&.open?

        driver = driver(client)
        @making.synchronize do
          session = @sessions[driver.identity]
          session = @sessions[driver.identity] = new(driver) unless session&.open?
          @found[client] = session
        end
      end

      def all
        @making.synchronize { @sessions.values.select(&:open?) }
      end

      private

      def driver(client)
        if client.respond_to?(:namespace)
          raise ArgumentError, "a lock has no namespace: make it with the Redis below, and with the prefix in its key"
        elsif client.respond_to?(:sentinel?) then ByRedisClient.new(client)
        elsif client.respond_to?(:_client) then client._client.respond_to?(:options) ? ByRedis4.new(client) : driver(client._client)
        elsif client.respond_to?(:config) then driver(client.config)
        elsif client.respond_to?(:with) then client.with { |one| driver(one) }
        else raise ArgumentError, "a lock needs a Redis, RedisClient or ConnectionPool, for one server or Sentinel, not #{client.class}"
        end
      end
    end

    attr_reader :heard

    def initialize(driver)
      @pid, @uid, @count, @mutex, @closed = Process.pid, SecureRandom.uuid, 0, Mutex.new, false
      @holds, @pending, @working, @retry, @heard = [], [], 0, 20, -Float::INFINITY
      @connections = Connections.new(driver)
      @keeper = Worker.new("mortise-keeper", method(:keep), -> { @holds.any? || @pending.any? || @working.positive? })
    end

    # A child of fork has neither its parent's threads nor its names.
    def open?
      !@closed && @pid == Process.pid
    end

    def name(task)
      number = @mutex.synchronize { @count += 1 }
      own = "#{@uid}:#{number.to_s(36)}"
      (task ? "#{task}###{own}" : own).b
    end

    # `close` waits until the block has ended: by then it is known what has to be left.
    def working
      counted = false
      Mortise.uninterrupted { counted = @mutex.synchronize { @working += 1 } }
      yield
    ensure
      Mortise.uninterrupted { @mutex.synchronize { @working -= 1 } } if counted
    end

    # The reply to one command about a lock.
    def ask(*command)
      ask_all([command]).first
    end

    # The replies to commands about locks, in one pipeline.
    def ask_all(commands)
      @connections.call(*commands).map { |reply| noticed(reply) }
    end

    # The reply to a command that may wait for so many milliseconds. The keeper notices when the server does not answer any more.
    def wait(command, limit)
      ends = Mortise.now + limit
      silent = @connections.probe # which takes 2 s if there is no answer
      return noticed(silent) if silent
      return Failed.new("the locks were closed", true) if @closed # nobody would end this wait

      @keeper.wake(urgent: false)
      limit = [1, ends - Mortise.now].max
      noticed(@connections.call([*command, "WAIT", limit.infinite? ? 0 : limit.ceil], wait: limit).first)
    end

    # Renews holds, in one pipeline. For each: true, false if it is not held any more, or what kept the server from replying.
    def renew(holds, lease = nil)
      sent = Mortise.now
      replies = ask_all(holds.flat_map { |hold| hold.renewals(lease || hold.lease_at(sent)) })
      holds.map { |hold| hold.renewed(replies.shift(hold.keys.size), sent, lease || hold.lease_at(sent)) }
    end

    # Whether the session is still open, so that the hold is kept.
    def keep_renewed(hold)
      return false unless @mutex.synchronize { @holds << hold unless @closed }

      @keeper.wake(urgent: hold.due_at < Mortise.now + TICK)
      true
    end

    # Whether it was renewed until now.
    def stop_renewing(hold)
      !@mutex.synchronize { @holds.delete(hold) }.nil?
    end

    # Has that owner leave these locks, until the server replies.
    def leave(keys, owner)
      @mutex.synchronize { @pending |= keys.map { |key| ["LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR] } }
      @keeper.wake
    end

    # A `Failed` while that name has to leave one of these locks: the LEAVE would end what the name gets meanwhile.
    def leaving(keys, owner)
      found = @mutex.synchronize { @pending.any? { |_, key, name| name == owner && keys.include?(key) } }
      Failed.new("#{owner.inspect} has to leave the lock first, and the server has not acknowledged that yet", true) if found
    end

    # Ends a hold here, and has its owner leave. Whether it was not over before.
    def drop(hold)
      stop_renewing(hold)
      hold.end.tap { |ended| leave(hold.keys, hold.owner) if ended }
    end

    # Leaves all that waits or is renewed. Whether the server has acknowledged all of it, and what is being released on other
    # threads, within so many milliseconds.
    def close(limit)
      ends = Mortise.now + limit
      @mutex.synchronize { @closed = true }
      @holds.dup.each { |hold| drop(hold) }
      loop do
        done = @mutex.synchronize { @pending.empty? && @working.zero? }
        @connections.hang_up # also those that have begun to wait meanwhile
        return done if done || Mortise.now >= ends

        sleep 0.005
      end
    end

    private

    def noticed(reply)
      @heard = Mortise.now unless reply.is_a?(Failed)
      reply.is_a?(Refusal) && LATER.include?(reply.code) ? Failed.new(reply.text, true) : reply
    end

    # Renews what is held and sends what is pending: many in one pipeline. Returns for how many milliseconds nothing more is due, or how
    # long it pauses after a failure.
    def keep
      start = Mortise.now
      if @connections.waiting?
        open? ? @connections.probe : @connections.hang_up # a wait may have been connecting when the locks were closed
      end
      lost, holds = @holds.dup.partition { |hold| start >= hold.until }
      lost.each { |hold| lose(hold) }
      due, leaving = holds.select { |hold| hold.renew?(start) }, @pending.first(BATCH)
      return [1, [TICK, *holds.map { |hold| hold.due_at - start }].min].max if due.empty? && leaving.empty?

      failed = due.each_slice(BATCH).any? { |some| keep_all(some) } | leave_all(leaving)
      @retry = failed ? [@retry * 2, 500].min : 20
      failed ? [@retry, *holds.map { |hold| hold.lease / 10.0 }].min : 0
    end

    # Whether one of these has to be renewed again.
    def keep_all(holds)
      renew(holds).zip(holds).map do |renewed, hold|
        lose(hold) if !renewed && @holds.include?(hold) # and not if it is being given back
        renewed != true && renewed
      end.any?
    end

    # Whether one of these has to be sent again.
    def leave_all(leaving)
      replies = leaving.empty? ? [] : @connections.call(*leaving)
      failed = leaving.zip(replies).select { |_, reply| reply.is_a?(Failed) || (reply.is_a?(Refusal) && !%w[NOPERM WRONGTYPE].include?(reply.code)) }
      @mutex.synchronize { @pending -= leaving - failed.map(&:first) }
      failed.any?
    end

    def lose(hold)
      Mortise.log(:warn, "the lock #{hold.keys.join(", ").inspect} was lost") if drop(hold)
    end
  end

  # A reply that says that there is no such hold. A key of another type has none.
  def self.gone?(reply)
    reply.nil? || (reply.is_a?(Refusal) && reply.code == "WRONGTYPE")
  end

  # A map of RESP3, or the flat array of RESP2.
  def self.fields(reply)
    reply.is_a?(Hash) ? reply : reply.each_slice(2).to_h
  end
end
