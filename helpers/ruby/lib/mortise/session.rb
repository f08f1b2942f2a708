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
  BEAT = 5_000 # ms after which the server has to prove that it still answers those who wait
  ELSEWHERE = %w[READONLY TRYAGAIN CLUSTERDOWN MASTERDOWN LOADING UNBLOCKED LEFT].freeze

  # One acquisition of one or several keys: requested under a name of its own, granted perhaps, and over in the end.
  class Grant
    attr_reader :keys, :owner, :lease, :token, :over, :until, :pid

    def initialize(keys, owner, lease, max_hold = nil)
      @keys, @owner, @lease, @max_hold, @pid = keys, owner, lease, max_hold || Float::INFINITY, Process.pid
      @over, @until = Event.new, -Float::INFINITY
    end

    # Takes what the server has granted to a request that was sent then.
    def granted(token, sent)
      @token, @last = token, sent + @max_hold
      believe(sent)
    end

    # The server confirmed at `from`, or later, that all of it is held for so long.
    def believe(from, lease = [@lease, @last - from].min)
      @until = [@until, [from + lease - (lease / 100.0) - 2, @last].min].max
      @renew_at = from + (@lease / 3.0)
    end

    def held?
      !@over.set? && @pid == Process.pid && Mortise.now < @until
    end

    def renew?(at)
      @renew_at <= at + (@lease / 10.0) && at < [@last, @until].min
    end

    # When there is something to do about it.
    def due_at
      @renew_at < @last ? [@until, @renew_at].min : @until
    end

    def commands
      renewals([@lease, @last - Mortise.now].min)
    end

    def renewals(lease)
      @keys.map { |key| ["LOCK.RENEW", key, @owner, [1, lease.floor].max, "TOKEN", @token] }
    end

    def leavings
      @leavings ||= @keys.map { |key| Leaving.new(key, @owner) }
    end
  end

  # What has to be sent until the server replies: that an owner leaves a lock.
  Leaving = Struct.new(:key, :owner) do
    def commands
      [["LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR]]
    end
  end

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
        if client.respond_to?(:new_client) then ByRedisClient.new(client)
        elsif client.respond_to?(:_client) then by_redis_rb(client, client._client)
        elsif client.respond_to?(:config) && client.config.respond_to?(:new_client) then ByRedisClient.new(client.config)
        elsif client.respond_to?(:with) then client.with { |one| driver(one) }
        else raise ArgumentError, "a lock needs a Redis, a RedisClient or a ConnectionPool of these, not #{client.class}"
        end
      end

      def by_redis_rb(redis, client)
        return ByRedis4.new(redis) if client.is_a?(::Redis::Client) && client.respond_to?(:options)
        return ByRedisClient.new(client.config) if client.respond_to?(:config) && client.config.respond_to?(:new_client)

        raise ArgumentError, "these locks are for one server, or Sentinel: not for #{client.class}"
      end
    end

    attr_reader :heard

    def initialize(driver)
      @pid, @uid, @count, @mutex, @closed = Process.pid, SecureRandom.uuid, 0, Mutex.new, false
      @holds, @pending, @working, @retry, @heard, @beat = [], [], 0, 20, -Float::INFINITY, Mortise.now
      @connections = Connections.new(driver)
      @keeper = Worker.new("mortise-keeper", method(:keep), -> { @holds.any? || @pending.any? || @connections.waiting? })
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
      leave_first(commands)
      @connections.call(*commands).map { |reply| noticed(reply) }
    end

    # The reply to a command that may wait for so many milliseconds. The keeper notices when the server does not answer any more.
    def wait(command, limit)
      @connections.probing? ? leave_first([command]) : check_server
      @keeper.wake(urgent: false)
      noticed(@connections.call([*command, "WAIT", limit.infinite? ? 0 : [1, limit.ceil].max], wait: limit).first)
    end

    # Whether the server confirms the hold for so long from now on. If that is unknown, what kept the server from replying.
    def extend(grant, lease)
      return false unless grant.held?

      sent = Mortise.now
      replies = ask_all(grant.renewals(lease))
      unknown = replies.find { |reply| reply.is_a?(Failed) || (reply.is_a?(Refusal) && !Mortise.gone?(reply)) }
      return unknown if unknown
      return false unless replies.all?(grant.token) && grant.held?

      grant.believe(sent, lease)
      true
    end

    # Whether what was granted is held. However long ago that was, it counts from this renewal on.
    def confirm(grant)
      sent = Mortise.now
      return false unless ask_all(grant.renewals(grant.lease)).all?(grant.token)

      grant.believe(sent)
      grant.held?
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

    # Has these names leave, until the server replies.
    def later(leavings)
      @mutex.synchronize { @pending |= leavings }
      @keeper.wake
    end

    def lose(hold)
      Mortise.logger.warn("the lock #{hold.keys.join(", ").inspect} was lost") unless hold.over.set?
      give_up(hold)
    end

    # Ends it here, and has the owner leave.
    def give_up(hold)
      stop_renewing(hold)
      return if hold.over.set?

      hold.over.set
      later(hold.leavings)
    end

    # Leaves all that waits or is renewed. Whether the server has acknowledged all of it, and what is being released on other
    # threads, within so many milliseconds.
    def close(limit)
      ends = Mortise.now + limit
      @mutex.synchronize { @closed = true }
      @holds.dup.each { |hold| give_up(hold) }
      until (done = @mutex.synchronize { @pending.empty? && @working.zero? }) || Mortise.now >= ends
        @connections.hang_up # also those that have begun to wait meanwhile
        sleep 0.005
      end
      @connections.hang_up
      done
    end

    private

    # A request would wait for what is still to be left at its locks.
    def leave_first(commands)
      keys = commands.flat_map { |words| words[0] == "LOCK.MACQUIRE" ? words[4, words[3]] : [words[1]] }
      first = @mutex.synchronize { @pending.select { |pending| keys.include?(pending.key) }.first(BATCH) }
      first.zip(@connections.call(*first.flat_map(&:commands))) { |pending, reply| done(pending, reply) } if first.any?
    end

    def noticed(reply)
      @heard = Mortise.now unless reply.is_a?(Failed)
      reply.is_a?(Refusal) && ELSEWHERE.include?(reply.code) ? Failed.new(reply.text, true) : reply
    end

    # Renews what is held and sends what is pending: many in one pipeline.
    def keep
      start = Mortise.now
      check_server if @connections.waiting? && start - @beat > BEAT
      lost, holds = @holds.dup.partition { |hold| start >= hold.until }
      lost.each { |hold| lose(hold) }
      jobs = holds.select { |hold| hold.renew?(start) } + @pending.first(BATCH)
      return @keeper.wait([1, [TICK, *holds.map { |hold| hold.due_at - start }].min].max) if jobs.empty?

      failed = jobs.each_slice(BATCH).any? { |some| send_together(some) }
      @retry = failed ? [@retry * 2, 500].min : 20
      sleep [@retry, *holds.map { |hold| hold.lease / 10.0 }].min / 1000.0 if failed
    end

    # If there is no answer, those who wait ask again, where the primary is by then.
    def check_server
      @beat = Mortise.now
      @connections.probe
    end

    # Whether any of it has to be sent again.
    def send_together(jobs)
      sent = Mortise.now
      sizes = jobs.map { |job| job.commands.size }
      replies = @connections.call(*jobs.flat_map(&:commands))
      jobs.zip(sizes).map do |job, size|
        own = replies.shift(size)
        job.is_a?(Leaving) ? done(job, own.first) : renewed(job, own, sent)
      end.any?
    end

    def renewed(hold, replies, sent)
      if replies.any? { |reply| Mortise.gone?(reply) }
        lose(hold)
      elsif replies.all?(hold.token) && Mortise.now < hold.until # a belief that has run out is never taken up again
        hold.believe(sent)
      end
      replies.any? { |reply| reply.is_a?(Failed) || reply.is_a?(Refusal) }
    end

    def done(pending, reply)
      failed = reply.is_a?(Failed) || (reply.is_a?(Refusal) && !%w[NOPERM WRONGTYPE].include?(reply.code))
      @mutex.synchronize { @pending.delete(pending) } unless failed
      failed
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
