# frozen_string_literal: true

module Mortise
  # A lock that was taken, or several that were taken at once, until it is released or lost.
  class Hold
    # The fencing token, larger than every one granted before: for a store that refuses smaller ones.
    attr_reader :token
    attr_reader :keys, :owner

    # For the session: the lease in milliseconds, and until when the lock counts as held.
    attr_reader :lease, :until

    def initialize(session, keys:, owner:, token:, sent:, lease:, max_hold:)
      @session, @keys, @owner, @token, @lease, @pid = session, keys, owner, token, lease, Process.pid
      @last, @until, @over = sent + (max_hold || Float::INFINITY), -Float::INFINITY, Event.new
      believe(sent, lease_at(sent))
    end

    def key
      keys.first
    end

    # Whether it is held, by this process's own clock. Sends no command.
    def held?
      !@released && believed?
    end

    # Whether it ended though nobody released it.
    def lost?
      !@released && !held?
    end

    # Whether it was released, or passed on.
    def given_back?
      @released
    end

    # Whether this process was forked from the one that took it, and still holds it.
    def inherited?
      @pid != Process.pid
    end

    # Raises Lost where it is lost: for the midst of a long job.
    def check!
      raise Lost, "the lock #{name} was lost" unless held?
    end

    # Returns when it is lost (true), or when it was released or `timeout` seconds are over (false).
    def wait_lost(timeout = nil)
      ends = Mortise.now + (timeout ? timeout.to_f * 1000 : Float::INFINITY)
      while believed? && (left = ends - Mortise.now).positive?
        @over.wait([@until - Mortise.now + 1, left, TICK].min.clamp(0, TICK))
      end
      lost?
    end

    # Holds the lock for `seconds` from now at least. Raises Lost, after which nothing is held, Unreachable, Refused.
    def extend(seconds)
      check_own
      ms = Lock.ms(:seconds, seconds, LEAST_LEASE).to_i
      return self if held? && Lock.said(@session.renew([self], ms).first)

      @session.drop(self)
      raise Lost, "the lock #{name} was lost before it was extended"
    end

    # Runs a command on the same server if the lock, or the first of several, is still held then, with no time between the check and
    # the write. Returns what the command replies. Raises Lost, and Refused where the command fails.
    def guard(*command)
      check!
      raise ArgumentError, "a command has no nil: #{command.inspect}" if command.include?(nil)

      reply = @session.ask("LOCK.GUARD", key, owner, token, *command.map(&:to_s))
      return Lock.said(reply) unless reply.is_a?(Refusal) && reply.code == "NOTHELD"

      @session.drop(self)
      raise Lost, "the lock #{name} was lost: #{reply.text}"
    end

    # Gives the lock back. Raises Lost if it was lost before, so that nobody overlooks that, and Refused. If the server does not answer,
    # the name leaves.
    def release
      @session.working do
        check_own
        held, known = held?, false
        @released = true
        @session.stop_renewing(self)
        self.end
        replies = @session.ask_all(keys.map { |key| ["LOCK.RELEASE", key, owner, "ALL", "TOKEN", token] })
        refused = replies.find { |reply| reply.is_a?(Refusal) && !Mortise.gone?(reply) }
        known = !refused && replies.none?(Failed)
        raise Refused, refused.text if refused && refused.code == "NOPERM"
        raise Lost, "the lock #{name} was lost before it was released" if !held || replies.any? { |reply| Mortise.gone?(reply) }
      ensure
        Mortise.uninterrupted { @session.leave(keys, owner) } if known == false
      end
    end

    # Gives the lock back, but keeps it taken for so many seconds from now: a job then runs once in that time, however short it is.
    # It passes the lock to a name that nobody uses, and raises what `pass` does.
    def keep_for(seconds)
      @session.working { hand_over(@session.name(nil), Lock.ms(:seconds, seconds)) }
    end

    # Passes the lock to `owner` with a lease of that many seconds, and returns its new token: see `Lock#take_over`.
    # Several locks that were taken at once are not passed on: each would get a token of its own.
    #
    # Raises Lost, and Refused, after which the lock is held as before. Raises Unreachable if the server does not answer. If it is
    # unknown then whether the lock was passed, both names leave it.
    def pass(owner, seconds)
      raise ArgumentError, "locks are passed on one by one, not #{name} together" if keys.size > 1

      heir, ms = Lock.owner(owner), Lock.ms(:seconds, seconds)
      @session.working { hand_over(heir, ms) }
    end

    # For the session: for how many milliseconds it is renewed at that time.
    def lease_at(time)
      [@lease, @last - time].min
    end

    # For the session: whether it has to be renewed by then.
    def renew?(time)
      @renew_at <= time + (@lease / 10.0)
    end

    # For the session: when there is something to do about it.
    def due_at
      [@until, @renew_at].min
    end

    # For the session: the commands that renew it.
    def renewals(lease)
      @keys.map { |key| ["LOCK.RENEW", key, @owner, [1, lease.floor].max, "TOKEN", @token] }
    end

    # For the session: takes the replies to its renewal. A belief that has run out is never taken up again.
    def renewed(replies, sent, lease)
      return false if replies.any? { |reply| Mortise.gone?(reply) } || !believed?

      trouble = replies.find { |reply| !reply.is_a?(Integer) }
      believe(sent, lease) unless trouble
      trouble || true
    end

    # For the session: ends it here. Whether it was not over before.
    def end
      !@over.set? && @over.set
    end

    private

    def believed?
      !@over.set? && !inherited? && Mortise.now < @until
    end

    # The server confirmed at `sent`, or later, that all of it is held for so long.
    def believe(sent, lease)
      @until = [@until, [sent + lease - (lease / 100.0) - 2, @last].min].max
      @renew_at = sent + (@lease / 3.0)
    end

    def name
      keys.join(", ").inspect
    end

    # Passes what is held to another name. If only some of it was passed, or nobody knows, both names leave all of it.
    def hand_over(heir, ms)
      check_own
      check!
      Lock.said(@session.leaving(keys, heir))
      known, renewed = false, @session.stop_renewing(self)
      @released = true # nobody relies on it once this is sent
      replies = @session.ask_all(keys.map { |key| ["LOCK.PASS", key, owner, heir, [1, ms.ceil].max, "TOKEN", token] })
      passed, trouble = replies.grep(Integer), replies.find { |reply| !reply.is_a?(Integer) && !Mortise.gone?(reply) }
      Mortise.uninterrupted do
        known = passed.size == replies.size || (passed.empty? && (trouble.nil? || trouble.is_a?(Refusal) || trouble.known))
        if known && trouble # the server has changed nothing
          @released = false
          @session.keep_renewed(self) || @session.drop(self) if renewed
        end
      end
      raise Lost, "the lock #{name} was lost before it was passed on" if replies.any? { |reply| Mortise.gone?(reply) }
      raise Refused, trouble.cause if trouble.is_a?(Failed) && trouble.known && trouble.cause.is_a?(String)

      Lock.said(trouble || passed.max)
    ensure
      self.end if @released
      Mortise.uninterrupted { [owner, heir].each { |name| @session.leave(keys, name) } } if known == false
    end

    def check_own
      raise Error, "the lock #{name} was taken by another process, and is its own to release" if inherited?
      raise Error, "the lock #{name} is released already" if @released
    end
  end
end
