# frozen_string_literal: true

# What the locks of one server share in a process: the requests, the renewals, and what has to be left. `lock.rb` is the public
# part, `wire.rb` has the connections.
#
# One rule stands above the others: *a hold whose state is unknown is never kept*. Every attempt has a name of its own. If its
# outcome is unknown, LOCK.LEAVE … FOR is repeated until the server replies, and whatever arrives late changes nothing.

require "securerandom"
require_relative "wire"

module Mortise
  MAIL_WAIT = 2_000 # ms for which one LOCK.MAIL waits
  LEAVE_FOR = 60_000 # ms in which what arrives late from a name that has left changes nothing
  LETTER_DELAY = 1_000 # ms past a waiter's limit in which its answer may still arrive
  LATE = 200 # ms that a process which was stopped past that gets to read what has arrived
  ELSEWHERE = %w[READONLY TRYAGAIN CLUSTERDOWN MASTERDOWN LOADING UNBLOCKED LEFT].freeze

  # One acquisition: requested under a name of its own, granted perhaps, and over in the end.
  class Grant
    attr_reader :key, :owner, :lease, :token, :answered, :over, :answer, :since, :known_at, :granted_at, :until, :deadline, :pid

    # Those that are requested with this one.
    attr_accessor :beside

    def initialize(key, owner, lease, max_hold = nil)
      @beside = []
      @key, @owner, @lease, @max_hold, @pid = key, owner, lease, max_hold || Float::INFINITY, Process.pid
      @answered, @over, @known_at = Event.new, Event.new, Float::INFINITY
      @begin = @until = @deadline = -Float::INFINITY
    end

    # It waits in the queue, with the box that had this `since`.
    def queued(since)
      @since, @known_at = since, Mortise.now
    end

    # Takes the answer that comes by letter: a token, nil, a `Refusal` or a `Failed`.
    def settle(answer, granted_at = -Float::INFINITY)
      return if @answered.set?

      @answer, @begin = answer, granted_at
      @answered.set
    end

    def granted(token, sent, lease)
      @token, @granted_at = token, [sent, @begin].max
      @last = @granted_at + @max_hold
      believe(@granted_at, lease)
    end

    # The server confirmed at `from`, or later, that the lock is held for so long.
    def believe(from, lease = [@lease, @last - from].min)
      @deadline = [@deadline, from + lease].max
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

    def command
      renewal([@lease, @last - Mortise.now].min)
    end

    def renewal(lease)
      ["LOCK.RENEW", @key, @owner, [1, lease.floor].max, "TOKEN", @token]
    end

    def leaving
      @leaving ||= Leaving.new(@key, @owner)
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
      @asked, @queued, @holds, @pending, @working, @retry, @heard = {}, [], [], [], 0, 20, -Float::INFINITY
      @wire, @mail = Wire.new(driver, 0), Wire.new(driver, MAIL_WAIT / 1000.0)
      @box, @since, @number, @doubt = SecureRandom.uuid, nil, 0, false
      @keeper = Worker.new("mortise-keeper", method(:keep), -> { @holds.any? || @pending.any? })
      @listener = Worker.new("mortise-listener", method(:listen), -> { @queued.any? && !@closed })
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

    # A letter may overtake the reply to its request: so a hold is entered before the request is sent.
    def enter(hold)
      @mutex.synchronize { @asked[hold.owner] = hold unless @closed }
    end

    # Whether it was still there, that is, `close` was not faster.
    def forget(hold)
      !@mutex.synchronize { @asked.delete(hold.owner) }.nil?
    end

    # The reply to one command about a key. What is to be left there is sent first, so that nobody waits for himself.
    def ask(*command, wait: 0)
      mail = wait.positive? ? ["WAIT", wait.infinite? ? 0 : [1, wait.ceil].max, "MAIL", @box] : []
      first = @mutex.synchronize { @pending.size < 100 ? @pending.select { |pending| keys_of(command).include?(pending.key) } : [] }
      *replies, reply = @wire.call(*first.map(&:command), [*command, *mail])
      first.zip(replies) { |pending, said| done(pending, said) }
      @heard = Mortise.now unless reply.is_a?(Failed)
      reply.is_a?(Refusal) && ELSEWHERE.include?(reply.code) ? Failed.new(reply.text, true) : reply
    end

    # Whether the server confirms the hold for so long from now on. If that is unknown, what kept the server from replying.
    def extend(grant, lease)
      sent = Mortise.now
      reply = ask(*grant.renewal(lease)) if grant.held?
      return reply if reply.is_a?(Failed) || (reply.is_a?(Refusal) && reply.code != "WRONGTYPE")
      return false unless reply == grant.token && grant.held?

      grant.believe(sent, lease)
      true
    end

    # The letter to a request that was queued.
    def answer(hold, since, left)
      hold.queued(since)
      @mutex.synchronize do
        @queued << hold
        @doubt ||= since != @since
      end
      @listener.wake
      ends = Mortise.now + left + LETTER_DELAY
      hold.answered.wait([ends - Mortise.now, 60_000].min) until hold.answered.set? || Mortise.now >= ends
      hold.answered.wait(LATE) ? hold.answer : Failed.new
    ensure
      Mortise.uninterrupted { @mutex.synchronize { @queued.delete(hold) } }
    end

    def keep_renewed(hold)
      return give_up(hold) unless @mutex.synchronize { @holds << hold unless @closed }

      @keeper.wake(urgent: hold.due_at < Mortise.now + TICK)
    end

    # Whether it was renewed until now.
    def stop_renewing(hold)
      !@mutex.synchronize { @holds.delete(hold) }.nil?
    end

    # Sends this until the server replies.
    def later(pending)
      @mutex.synchronize { @pending << pending unless @pending.include?(pending) }
      @keeper.wake
    end

    def lose(hold)
      Mortise.logger.warn("the lock #{hold.key.inspect} was lost") unless hold.over.set?
      give_up(hold)
    end

    # Ends it here, and has the owner leave.
    def give_up(hold)
      stop_renewing(hold)
      return if hold.over.set?

      hold.over.set
      later(hold.leaving)
    end

    # Leaves all that waits or is renewed. Whether the server has acknowledged all of it, and what is being released on other
    # threads, within so many milliseconds.
    def close(ms)
      ends = Mortise.now + ms
      waiting = @mutex.synchronize { @closed = true and @asked.values.tap { @asked.clear } }
      waiting.each do |hold|
        hold.settle(Failed.new("closed", true)) and [hold, *hold.beside].each { |one| later(one.leaving) }
      end
      @holds.dup.each { |hold| give_up(hold) }
      sleep 0.005 until (done = @mutex.synchronize { @pending.empty? && @working.zero? }) || Mortise.now >= ends
      [@wire, @mail].each(&:hang_up)
      done
    end

    private

    def keys_of(command)
      command[0] == "LOCK.MACQUIRE" ? command[4, command[3]] : [command[1]]
    end

    # Collects letters.
    def listen
      sent = Mortise.now
      after = @since ? ["AFTER", @since, @number] : []
      reply, = @mail.call(["LOCK.MAIL", @box, *after, "WAIT", MAIL_WAIT])
      return deliver(sent, *reply) unless reply.is_a?(Failed) || reply.is_a?(Refusal)

      if reply.is_a?(Refusal) && !ELSEWHERE.include?(reply.code)
        return give_up_waiting(Failed.new(reply)) { true } # nobody can wait, and whether the requests are gone is unknown
      end
      sleep 0.05
    end

    def deliver(sent, since, waited, letters)
      @heard = Mortise.now
      @since, @number, @doubt = since, 0, true if since != @since
      letters.map { |letter| Mortise.fields(letter) }.each do |letter|
        @number = [@number, letter["number"]].max
        settle(letter, sent + waited)
      end
      return unless @doubt # what was requested with another box is gone, or the next answer shows it

      give_up_waiting(Failed.new) { |hold| hold.since != since && hold.known_at < sent }
      @mutex.synchronize { @doubt = @queued.any? { |hold| hold.since != since } }
    end

    def settle(letter, arrived)
      hold, granted = @mutex.synchronize { @asked[letter["owner"].b] }, letter["result"] == "granted"
      if hold.nil?
        keys = granted ? letter["keys"] || [letter["key"]] : []
        keys.each { |key| later(Leaving.new(key.b, letter["owner"].b)) } # nobody wants it any more
      elsif granted
        hold.settle(letter["token"], arrived - letter["age"])
      elsif letter["result"] == "refused"
        refusal = Refusal.new(letter["error"])
        hold.settle(ELSEWHERE.include?(refusal.code) ? Failed.new(refusal.text, true) : refusal)
      else
        hold.settle(nil)
      end
    end

    def give_up_waiting(failed, &which)
      @queued.dup.select(&which).each do |hold|
        @mutex.synchronize { @queued.delete(hold) }
        hold.settle(failed)
      end
    end

    # Renews what is held and sends what is pending: many in one pipeline.
    def keep
      start = Mortise.now
      lost, holds = @holds.dup.partition { |hold| start >= hold.until }
      lost.each { |hold| lose(hold) }
      jobs = holds.select { |hold| hold.renew?(start) } + @pending.first(BATCH)
      return @keeper.wait([1, [TICK, *holds.map { |hold| hold.due_at - start }].min].max) if jobs.empty?

      failed = jobs.each_slice(BATCH).any? { |some| send_together(some) }
      @retry = failed ? [@retry * 2, 500].min : 20
      sleep [@retry, *holds.map { |hold| hold.lease / 10.0 }].min / 1000.0 if failed
    end

    # Whether any of it has to be sent again.
    def send_together(jobs)
      sent = Mortise.now
      replies = @wire.call(*jobs.map(&:command))
      jobs.zip(replies).map { |job, reply| job.is_a?(Leaving) ? done(job, reply) : renewed(job, reply, sent) }.any?
    end

    def renewed(hold, reply, sent)
      if reply.nil? || (reply.is_a?(Refusal) && reply.code == "WRONGTYPE")
        lose(hold)
      elsif reply == hold.token && Mortise.now < hold.until # a belief that has run out is never taken up again
        hold.believe(sent)
      end
      reply.is_a?(Failed) || reply.is_a?(Refusal)
    end

    def done(pending, reply)
      failed = reply.is_a?(Failed) || (reply.is_a?(Refusal) && !%w[NOPERM WRONGTYPE].include?(reply.code))
      @mutex.synchronize { @pending.delete(pending) } unless failed
      failed
    end
  end

  # What has to be sent until the server replies: that an owner leaves, or keeps the lock taken until a time and leaves then.
  class Leaving
    attr_reader :key

    def initialize(key, owner, &command)
      @key, @command = key, command || -> { ["LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR] }
    end

    def command
      @command.call
    end
  end

  # A map of RESP3, or the flat array of RESP2.
  def self.fields(reply)
    reply.is_a?(Hash) ? reply : reply.each_slice(2).to_h
  end
end
