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

  # A lock by name. It has no state of its own: any number of threads may use one object.
  class Lock
    # A lock on `key` at the server of `redis`: a Redis, a RedisClient, or a ConnectionPool of these. All times are seconds.
    #
    # lease: after so long the lock is free if this process dies, 0.003 at least. It is renewed at a third of it.
    # wait: for how long to wait in the queue. nil: without limit. 0: not at all.
    # renew: false if the lock is to end `lease` after its grant unless it is extended.
    # max_hold: after so long it is no longer renewed.
    # at_least: the lock stays taken for so long after its grant, also if it is released earlier, and also if this process dies.
    # task: a name for who asks. The server finds deadlocks between the locks of one task and those of others.
    def initialize(redis, key, lease: 30, wait: nil, renew: true, max_hold: nil, at_least: 0, task: nil)
      raise ArgumentError, "a lock's key is a String or a Symbol, not #{key.inspect}" unless [String, Symbol].include?(key.class)

      @redis, @key, @wait, @renew, @task = redis, key.to_s.b, wait, renew, task
      @lease = ms(:lease, lease, LEAST_LEASE).to_i
      @max_hold = max_hold && ms(:max_hold, max_hold, LEAST_LEASE)
      @at_least = ms(:at_least, at_least).to_i
      limit(wait)
    end

    # Takes the lock for as long as the block runs. Returns what the block returns.
    #
    # Raises Busy where others held it for all of `wait`, and Lost where it ended before the block did.
    def synchronize(wait: @wait, &block)
      take = -> { acquire(wait: wait) or raise Busy, "the lock #{@key.inspect} was held by others for #{wait} s" }
      Lock.during(take, &block)
    end

    # Takes a hold, runs the block, and gives the hold back however the block ends.
    def self.during(take)
      Thread.handle_interrupt(Object => :on_blocking) do
        hold, failed = take.call, false
        begin
          Thread.handle_interrupt(Object => :immediate) { yield hold }
        rescue Exception
          failed = true
          raise
        ensure
          give_back(hold, failed)
        end
      end
    end

    # The block's own error, if it failed, is the one to raise.
    def self.give_back(hold, failed)
      hold.release unless hold.inherited?
    rescue Error => error
      raise unless failed

      Mortise.logger.warn(error.message)
    end
    private_class_method :give_back

    # A Hold, or nil where others held it for all of `wait`.
    #
    # Raises Deadlock, Refused, and Unreachable if the server does not answer: at the limit of the wait, or without a limit after 10 s.
    def acquire(wait: @wait)
      limit, session = limit(wait), Session.of(@redis)
      ends, failing = Mortise.now + limit, nil
      (1..).each do |tries|
        outcome = session.working { attempt(session, limit.zero? ? 0 : ends - Mortise.now) }
        return outcome unless outcome.is_a?(Failed)

        Lock.said(outcome.cause) if outcome.cause.is_a?(Refusal)
        failing = outcome.cause && (failing || Mortise.now)
        if last_try?(tries, limit, ends, failing && [failing, session.heard].max) || outcome.cause == "closed"
          raise Unreachable, outcome.cause.to_s, cause: outcome.cause.is_a?(Exception) ? outcome.cause : nil if outcome.cause

          return nil
        end
        sleep [20 * (2**[tries, 5].min), [20, ends - Mortise.now].max].min / 1000.0 if failing || tries > 3
      end
    end

    # Whether anybody holds it now, by the server.
    def locked?
      info = Lock.said(Session.of(@redis).ask("LOCK.INFO", @key, "COUNT", 1))
      !info.nil? && Mortise.fields(info)["holders"].positive?
    end

    # A reply that is an error is raised.
    def self.said(reply)
      case reply
      when Failed then raise Unreachable, reply.cause.to_s, cause: reply.cause.is_a?(Exception) ? reply.cause : nil
      when Refusal then raise reply.code == "DEADLOCK" ? Deadlock : Refused, reply.text
      else reply
      end
    end

    private

    # The command, without its wait.
    def request(owner, lease)
      ["LOCK.ACQUIRE", @key, owner, lease, "HOLDS", 1]
    end

    def ms(name, seconds, least = 0)
      unless seconds.respond_to?(:to_f) && !seconds.nil? && !seconds.is_a?(String)
        raise TypeError, "#{name} is a number of seconds, not #{seconds.inspect}"
      end
      return seconds.to_f * 1000 if seconds.to_f.between?(least, 2**43)

      raise ArgumentError, "#{name} must be at least #{least} seconds, not #{seconds.inspect}"
    end

    # Milliseconds for which to wait. A time that has passed asks once.
    def limit(wait)
      wait.nil? ? Float::INFINITY : ms(:wait, wait, -(2**43)).clamp(0, Float::INFINITY)
    end

    def last_try?(tries, limit, ends, silent_since)
      return tries > 1 || Mortise.now - ends > 1_000 if limit.zero? # once more, but not after a silence

      Mortise.now + 20 >= (silent_since && limit.infinite? ? silent_since + PATIENCE : ends)
    end

    # One request under one name. Whatever is unknown of it in the end is left.
    def attempt(session, left)
      grants = requested(session.name(@task))
      grant = grants.first
      settled = !session.enter(grant)
      return Failed.new("closed", true) if settled

      sent, lease = Mortise.now, [@lease, @at_least].max
      reply = session.ask(*request(grant.owner, lease), wait: left)
      reply = session.answer(grant, reply[1], left) if reply.is_a?(Array)
      settled = reply.nil? || reply.is_a?(Refusal) || (reply.is_a?(Failed) && reply.known)
      return reply if reply.nil? || reply.is_a?(Failed)

      grants.each { |one| one.granted(Lock.said(reply), grant.granted_at || sent, lease) }
      late = grants.select { |one| one.until - Mortise.now < lease / 2 }
      return Failed.new unless late.all? { |one| session.extend(one, @lease) == true }

      grants.each { |one| session.keep_renewed(one) } if @renew
      return Failed.new("closed") unless (settled = session.forget(grant))

      held(grants.map { |one| Hold.new(session, one, @at_least) })
    ensure
      Mortise.uninterrupted { grants.each { |one| drop(session, one) } unless settled }
      Mortise.uninterrupted { session.forget(grant) }
    end

    # What is requested under one name, and what its caller gets.
    def requested(owner)
      [Grant.new(@key, owner, @lease, @max_hold)]
    end

    def held(holds)
      holds.first
    end

    def drop(session, grant)
      session.stop_renewing(grant)
      session.later(grant.leaving)
    end
  end

  # Shared with other readers; a `Lock` of the same name is their writer.
  class ReadLock < Lock
    private

    def request(owner, lease)
      ["LOCK.RLOCK", @key, owner, lease, "HOLDS", 1]
    end
  end

  # A number of permits that holders share. All its users name the same number.
  class Semaphore < Lock
    # `limit` permits in all; `permits` of them are taken at once.
    def initialize(redis, key, limit, permits: 1, **options)
      super(redis, key, **options)
      raise ArgumentError, "cannot take #{permits} of #{limit} permits" unless permits.between?(1, limit)

      @limit, @permits = limit, permits
    end

    private

    def request(owner, lease)
      ["LOCK.RLOCK", @key, owner, lease, "HOLDS", @permits, "LIMIT", @limit]
    end
  end

  # A lock that was taken, until it is released or lost.
  class Hold
    def initialize(session, grant, at_least = 0)
      @session, @grant, @at_least, @taken = session, grant, at_least, Mortise.now
    end

    # The fencing token, larger than every one granted before: for a store that refuses smaller ones.
    def token
      @grant.token
    end

    def key
      @grant.key
    end

    def owner
      @grant.owner
    end

    # Whether it is held, by this process's own clock. Sends no command.
    def held?
      !@released && @grant.held?
    end

    # Whether it ended though nobody released it.
    def lost?
      !@released && !held?
    end

    # Whether this process was forked from the one that took it, and still holds it.
    def inherited?
      @grant.pid != Process.pid
    end

    # Raises Lost where it is lost: for the midst of a long job.
    def check!
      raise Lost, "the lock #{key.inspect} was lost" unless held?
    end

    # Returns when it is lost (true), or when it was released or `timeout` seconds are over (false).
    def wait_lost(timeout = nil)
      ends = Mortise.now + (timeout ? timeout.to_f * 1000 : Float::INFINITY)
      while @grant.held? && (left = ends - Mortise.now).positive?
        @grant.over.wait([@grant.until - Mortise.now + 1, left, TICK].min.clamp(0, TICK))
      end
      lost?
    end

    # Holds the lock for `seconds` from now at least. Raises Lost, Unreachable, Refused.
    def extend(seconds)
      extended = Lock.said(@session.extend(@grant, (seconds.to_f * 1000).to_i))
      raise Lost, "the lock #{key.inspect} was lost before it was extended" unless extended

      self
    end

    # Runs a command on the same server if the lock is still held then, with no time between the check and the write. Returns what
    # the command replies. Raises Lost, and Refused where the command fails.
    def guard(*command)
      check!
      reply = @session.ask("LOCK.GUARD", key, owner, token, *command.map(&:to_s))
      raise Lost, "the lock #{key.inspect} was lost: #{reply.text}" if reply.is_a?(Refusal) && reply.code == "NOTHELD"

      Lock.said(reply)
    end

    # Gives the lock back. Raises Lost if it was lost before, so that nobody overlooks that, and Refused.
    def release
      @session.working { give_back }
    end

    # Passes the lock to `owner` with a lease of that many seconds. The rest of `at_least` ends.
    #
    # Raises Lost, and Refused, after which the lock is held as before. Raises Unreachable if the server does not answer. If it is
    # unknown then whether the lock was passed, both names leave it.
    def pass(owner, seconds)
      @session.working { hand_over(owner, seconds * 1000) }
    end

    private

    def give_back
      check_own
      held, rest, known = held?, resting, false
      @released = true
      @session.stop_renewing(@grant)
      @grant.over.set
      reply = @session.ask(*rest.command) if rest
      if reply.nil? # nothing has to rest, or what was revoked cannot
        rest = nil
        reply = @session.ask("LOCK.RELEASE", key, owner, "ALL", "TOKEN", token)
      end
      gone, forbidden = gone?(reply), reply.is_a?(Refusal) && reply.code == "NOPERM"
      known = gone || forbidden || reply.is_a?(Integer)
      raise Refused, reply.text if forbidden
      raise Lost, "the lock #{key.inspect} was lost before it was released" if gone || !held
    ensure
      Mortise.uninterrupted { @session.later(rest || @grant.leaving) } if known == false
    end

    def hand_over(owner, ms)
      check_own
      check!
      known, renewed = false, @session.stop_renewing(@grant)
      @released = true # nobody relies on it once this is sent
      reply = @session.ask(*passing(owner, ms))
      Mortise.uninterrupted do
        known = !reply.is_a?(Failed) || reply.known
        take_back(renewed) if known && !reply.is_a?(Integer) && !gone?(reply)
      end
      raise Lost, "the lock #{key.inspect} was lost before it was passed on" if gone?(reply)
      raise Refused, reply.cause if reply.is_a?(Failed) && reply.cause.is_a?(String)

      Lock.said(reply)
    ensure
      @grant.over.set if @released
      Mortise.uninterrupted { [@grant.leaving, Leaving.new(key, owner)].each { |leaving| @session.later(leaving) } } if known == false
    end

    def check_own
      raise Error, "the lock #{key.inspect} was taken by another process, and is its own to release" if inherited?
      raise Error, "the lock #{key.inspect} is released already" if @released
    end

    # A reply that says that there is no such hold. A key of another type has none.
    def gone?(reply)
      reply.nil? || (reply.is_a?(Refusal) && reply.code == "WRONGTYPE")
    end

    # The server has changed nothing.
    def take_back(renewed)
      @released = false
      @session.keep_renewed(@grant) if renewed
    end

    # The rest of `at_least` goes to a name that nobody uses. If it is sent again, it changes nothing, or its time is that much shorter.
    def resting
      ends = @taken + @at_least
      return unless ends > Mortise.now

      nobody = @session.name(nil)
      Leaving.new(key, owner) { passing(nobody, ends - Mortise.now) }
    end

    def passing(heir, ms)
      ["LOCK.PASS", key, owner, heir, [1, ms.ceil].max, "TOKEN", token]
    end
  end

  # Leaves all that is waited for or renewed at the server of `redis`, or at all. Whether the servers have acknowledged all of it
  # within `timeout` seconds. Whoever waits gets Unreachable. Runs by itself when the process ends.
  def self.close(redis = nil, timeout: 2)
    sessions = redis ? [Session.of(redis)] : Session.all
    sessions.map { |session| session.close(timeout * 1000) }.all?
  end
end

require_relative "multi_lock"

at_exit { Mortise.close(timeout: 0.5) }
