# frozen_string_literal: true

# Locks that the Redis or Valkey server knows, for redis-rb and redis-client.

require_relative "session"

module Mortise
  class Error < StandardError; end

  # Others held the lock for as long as this was to wait.
  class Busy < Error; end

  # The lock ended before it was released: another owner may have it.
  class Lost < Error; end

  # The server found that this wait would never end. The text names the keys.
  class Deadlock < Error; end

  # The server refused: a key of another type, too many waiters, no permission. The text is its own.
  class Refused < Error; end

  # The server could not be asked. `cause` is the client's own error, where there is one.
  class Unreachable < Error; end

  PATIENCE = 10_000 # ms for which an acquisition without a limit bears a server that answers nobody
  LEAST_LEASE = 0.003 # seconds; from a shorter lease nothing is left
  private_constant :PATIENCE, :LEAST_LEASE

  # A lock by name, or several that are taken at once. It has no state of its own: any number of threads may use one object.
  class Lock
    # A lock on `key` at the server of `redis`: a Redis, a RedisClient, or a ConnectionPool of these. With an Array of 1 to 16 keys it is
    # all of these locks, taken in one instant or not at all, and lost as soon as one of them is. All times are seconds.
    #
    # lease: after so long the lock is free if this process dies, 0.003 at least. It is renewed at a third of it.
    # wait: for how long to wait in the queue. nil: without limit. 0: not at all.
    # renew: false if the lock is to end `lease` after its grant unless it is extended.
    # max_hold: after so long it is no longer renewed.
    # task: a name for who asks. The server finds deadlocks between the locks of one task and those of others.
    def initialize(redis, key, lease: 30, wait: nil, renew: true, max_hold: nil, task: nil)
      @redis, @keys, @wait, @renew, @task = redis, Lock.keys(key), wait, renew, task
      @lease = Lock.ms(:lease, lease, LEAST_LEASE).to_i
      @max_hold = max_hold && Lock.ms(:max_hold, max_hold, LEAST_LEASE)
      limit(wait)
    end

    class << self
      # The names of locks, as bytes.
      def keys(given)
        keys = given.is_a?(Array) ? given : [given]
        unless keys.any? && keys.all? { |key| [String, Symbol].include?(key.class) }
          raise ArgumentError, "a lock's key is a String or a Symbol, or several keys an Array of these, not #{given.inspect}"
        end

        keys.map { |key| key.to_s.b }
      end

      # The name of an owner, as bytes.
      def owner(given)
        name = given.to_s.b
        return name if name.bytesize.between?(1, 255)

        raise ArgumentError, "an owner is a name of 1 to 255 bytes, not #{given.inspect}"
      end

      def ms(name, seconds, least = 0)
        unless seconds.respond_to?(:to_f) && !seconds.nil? && !seconds.is_a?(String)
          raise TypeError, "#{name} is a number of seconds, not #{seconds.inspect}"
        end
        return seconds.to_f * 1000 if seconds.to_f.between?(least, 2**43)

        raise ArgumentError, "#{name} is #{least} to #{2**43} seconds, not #{seconds.inspect}"
      end

      # Takes a hold, runs the block, and gives the hold back however the block ends. Nil if there is none to take.
      def during(take)
        Thread.handle_interrupt(Object => :on_blocking) do
          hold, failed = take.call, nil
          next unless hold

          begin
            Thread.handle_interrupt(Object => :immediate) { yield hold }
          rescue Exception => error
            failed = error
            raise
          ensure
            give_back(hold, failed)
          end
        end
      end

      # A reply, or as an exception what it says or what kept the server from replying.
      def said(reply)
        case reply
        when Failed then raise Unreachable, (reply.cause || "the answer came too late").to_s, cause: reply.cause.is_a?(Exception) ? reply.cause : nil
        when Refusal then raise reply.code == "DEADLOCK" ? Deadlock : Refused, reply.explained
        else reply
        end
      end

      private

      # The block's own error, if it failed, is the one to raise, and a loss is its cause if it has no other.
      def give_back(hold, failed)
        hold.release unless hold.inherited? || hold.given_back?
      rescue Error => error
        raise unless failed

        Mortise.log(:warn, error.message)
        raise failed, cause: error.class.new(error.message) unless failed.cause # the error itself has been caused by the failure
      end
    end

    # Takes the lock for as long as the block runs, unless the block itself gives it back. Returns what the block returns.
    #
    # Raises Busy where others held it for all of `wait`, and Lost where it ended before the block did.
    def synchronize(wait: @wait, &block)
      take = -> { acquire(wait: wait) or raise Busy, "the lock #{name.inspect} was held by others for #{wait} s" }
      Lock.during(take, &block)
    end

    # A Hold, or nil where others held it for all of `wait`. `owner`: the name under which to hold it, if it is to be known elsewhere: the
    # same request under the same name again gets the same lock. If a request gets no reply, this raises Unreachable at once: the name
    # has to leave, and gets nothing for a minute.
    #
    # Raises Deadlock, Refused, and Unreachable if the server does not answer: at the limit of the wait, or without a limit after 10 s.
    def acquire(wait: @wait, owner: nil)
      limit, owner, session = limit(wait), owner && Lock.owner(owner), Session.of(@redis)
      ends, failing = Mortise.now + limit, nil
      (1..).each do |tries|
        name = owner || session.name(@task)
        outcome = attempt(session, limit.zero? ? 0 : ends - Mortise.now, name, request(name))
        return outcome unless outcome.is_a?(Failed)

        raise Unreachable, "the locks were closed" unless session.open?

        Lock.said(outcome) if owner && !outcome.known # another request by that name would get what the LEAVE then ends
        failing = outcome.cause && (failing || Mortise.now)
        if last_try?(tries, limit, ends, failing && [failing, session.heard].max)
          return nil unless outcome.cause

          Lock.said(outcome)
        end
        sleep [20 * (2**[tries, 5].min), [20, ends - Mortise.now].max].min / 1000.0 if failing || tries > 3
      end
    end

    # Goes on with a lock that another process holds by the name `owner` and this token, under a name of its own: see `Hold#pass`.
    # Nil where that hold is over. Of several that try, one gets it. Without a token it is any hold by that name.
    def take_over(owner, token = nil)
      session, owner = alone, Lock.owner(owner)
      name = session.name(@task)
      Lock.said(attempt(session, 0, name, ["LOCK.PASS", @keys.first, owner, name, @lease, *(["TOKEN", token] if token)]))
    end

    # The hold that another process, or this one, has by the name `owner` and this token, under the same name: to release, pass or extend
    # it here. Nil where it is over. The other must not go on with it.
    def resume(owner, token)
      session, owner = alone, Lock.owner(owner)
      Lock.said(session.leaving(@keys, owner) || confirmed(session, owner, Integer(token)))
    end

    # Makes all holds of the lock end with their leases, or only that of `owner`: holders learn of it at their next renewal, and nobody
    # else is granted before. Returns for how many seconds the last one lasts at most.
    def revoke(owner = nil)
      session = Session.of(@redis)
      left = @keys.flat_map do |key|
        (owner ? [owner] : holders(session, key)).map { |name| Lock.said(session.ask("LOCK.REVOKE", key, name)) }
      end
      left.compact.max.to_i / 1000.0
    end

    # Whether anybody holds it now, or one of several, by the server.
    def locked?
      @keys.any? { |key| holders(Session.of(@redis), key).any? }
    end

    private

    # The command, without its wait.
    def request(owner)
      return ["LOCK.ACQUIRE", @keys.first, owner, @lease, "HOLDS", 1] if @keys.size == 1

      ["LOCK.MACQUIRE", owner, @lease, @keys.size, *@keys]
    end

    def name
      @keys.join(", ")
    end

    # Milliseconds for which to wait. A time that has passed asks once.
    def limit(wait)
      wait.nil? ? Float::INFINITY : Lock.ms(:wait, wait, -(2**43)).clamp(0, Float::INFINITY)
    end

    def last_try?(tries, limit, ends, silent_since)
      return tries > 1 || Mortise.now - ends > 1_000 if limit.zero? # once more, but not after a silence

      Mortise.now + 20 >= (silent_since && limit.infinite? ? silent_since + PATIENCE : ends)
    end

    # One request under one name: what the server said, or the hold. Whatever is unknown of it in the end is left.
    def attempt(session, left, owner, words)
      session.working do
        sent, settled, hold = Mortise.now, false, nil
        reply = session.leaving(@keys, owner) || (left.positive? ? session.wait(words, left) : session.ask(*words))
        settled = reply.nil? || reply.is_a?(Refusal) || (reply.is_a?(Failed) && reply.known)
        return reply if reply.nil? || reply.is_a?(Failed)

        token = Lock.said(reply)
        hold = Mortise.now - sent < @lease / 2 ? held(session, owner, token, sent) : confirmed(session, owner, token)
        settled = hold.is_a?(Hold)
        settled ? hold : Failed.new
      ensure
        Mortise.uninterrupted { hold.is_a?(Hold) ? session.drop(hold) : session.leave(@keys, owner) } unless settled
      end
    end

    # What is granted becomes its caller's, unless the session was closed meanwhile.
    def held(session, owner, token, sent)
      hold = Hold.new(session, keys: @keys, owner: owner, token: token, sent: sent, lease: @lease, max_hold: @max_hold)
      hold if !@renew || session.keep_renewed(hold)
    end

    # The hold of that name and token, however long ago it was granted: it counts from this renewal on. Otherwise what the server said.
    def confirmed(session, owner, token)
      sent = Mortise.now
      replies = session.ask_all(@keys.map { |key| ["LOCK.RENEW", key, owner, @lease, "TOKEN", token] })
      replies.all?(token) ? held(session, owner, token, sent) : replies.find { |reply| reply != token }
    end

    # The session, if the lock has one key: holds that another process has are taken over one by one.
    def alone
      raise ArgumentError, "locks are taken over one by one, not #{name.inspect} together" if @keys.size > 1

      Session.of(@redis)
    end

    def holders(session, key)
      info = Lock.said(session.ask("LOCK.INFO", key, "COUNT", (2**31) - 1))
      info.nil? ? [] : Mortise.fields(info)["holds"].map { |hold| Mortise.fields(hold)["owner"] }
    end
  end

  # Shared with other readers; a `Lock` of the same name is their writer.
  class ReadLock < Lock
    def initialize(redis, key, **options)
      raise ArgumentError, "one key is read at a time, not #{key.inspect}" if key.is_a?(Array)

      super
    end

    private

    def request(owner)
      ["LOCK.RLOCK", @keys.first, owner, @lease, "HOLDS", 1]
    end
  end

  # A number of permits that holders share. All its users name the same number.
  class Semaphore < ReadLock
    # `limit` permits in all; `permits` of them are taken at once.
    def initialize(redis, key, limit, permits: 1, **options)
      super(redis, key, **options)
      raise ArgumentError, "cannot take #{permits} of #{limit} permits" unless permits.between?(1, limit)

      @limit, @permits = limit, permits
    end

    private

    def request(owner)
      ["LOCK.RLOCK", @keys.first, owner, @lease, "HOLDS", @permits, "LIMIT", @limit]
    end
  end

  # Leaves all that is waited for or renewed at the server of `redis`, or at all. Whether the servers have acknowledged all of it
  # within `timeout` seconds. Whoever waits gets Unreachable. Runs by itself when the process ends.
  def self.close(redis = nil, timeout: 2)
    sessions = redis ? [Session.of(redis)] : Session.all
    sessions.map { |session| session.close(timeout * 1000) }.all?
  end
end

require_relative "hold"

at_exit { Mortise.close(timeout: 0.5) }
