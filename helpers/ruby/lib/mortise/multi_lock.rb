# frozen_string_literal: true

module Mortise
  # Several locks at once, all or none, exclusively. Nothing is held while it waits.
  class MultiLock < Lock
    # The locks on 1 to 16 `keys`, with the options of `Lock`. It is lost as soon as one of them is.
    def initialize(redis, keys, **options)
      raise ArgumentError, "several locks have keys, and not #{keys.inspect}" unless keys.is_a?(Array) && keys.any?

      super(redis, keys.first, **options)
      @keys = keys.map do |key|
        raise ArgumentError, "a lock's key is a String or a Symbol, not #{key.inspect}" unless [String, Symbol].include?(key.class)

        key.to_s.b
      end
    end

    # Whether anybody holds one of them now, by the server.
    def locked?
      @keys.any? { |key| Lock.new(@redis, key).locked? }
    end

    private

    def request(owner, lease)
      ["LOCK.MACQUIRE", owner, lease, @keys.size, *@keys]
    end

    def requested(owner)
      first, *others = @keys.map { |key| Grant.new(key, owner, @lease, @max_hold) }
      first.beside = others
      [first, *others]
    end

    def held(holds)
      MultiHold.new(holds)
    end
  end

  # Several locks that were taken at once by one token. Each is a hold of its own, renewed and given back like any other.
  class MultiHold
    attr_reader :holds

    def initialize(holds)
      @holds = holds
    end

    def token
      @holds.first.token
    end

    def keys
      @holds.map(&:key)
    end

    # Whether all of them are held, by this process's own clock. Sends no command.
    def held?
      @holds.all?(&:held?)
    end

    # Whether one of them ended though nobody released it.
    def lost?
      @holds.any?(&:lost?)
    end

    def inherited?
      @holds.any?(&:inherited?)
    end

    # Raises Lost where one of them is lost: for the midst of a long job.
    def check!
      @holds.each(&:check!)
    end

    # Holds all of them for `seconds` from now at least. Raises Lost, Unreachable, Refused.
    def extend(seconds)
      @holds.each { |hold| hold.extend(seconds) }
      self
    end

    # Gives all of them back. Raises Lost if one of them was lost before, and Refused.
    def release
      failed = nil
      @holds.each do |hold|
        hold.release
      rescue Error => error
        failed = error
      end
      raise failed if failed
    end
  end
end
