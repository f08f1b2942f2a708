# frozen_string_literal: true

# A minimal fiber scheduler, as Ruby's own documentation describes it, for fibers that sleep, block and wait for sockets.
class Scheduler
  def initialize
    @sleeping, @reading, @ready, @mutex = {}, {}, [], Mutex.new
    @awake, @wake = IO.pipe
  end

  def close
    turn until @sleeping.empty? && @reading.empty? && @ready.empty? && @blocked.to_i.zero?
  end

  def fiber(&block)
    Fiber.new(blocking: false, &block).tap(&:resume)
  end

  def io_wait(io, events, timeout)
    @reading[Fiber.current] = [io, events]
    @sleeping[Fiber.current] = now + timeout if timeout
    Fiber.yield
  ensure
    @reading.delete(Fiber.current)
    @sleeping.delete(Fiber.current)
  end

  def kernel_sleep(seconds = nil)
    block(:sleep, seconds)
  end

  def block(_blocker, timeout = nil)
    @blocked = @blocked.to_i + 1
    @sleeping[Fiber.current] = now + timeout if timeout
    Fiber.yield == :unblocked
  ensure
    @blocked -= 1
    @sleeping.delete(Fiber.current)
  end

  # Called by any thread.
  def unblock(_blocker, fiber)
    @mutex.synchronize { @ready << fiber }
    @wake.write_nonblock(".")
  end

  private

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def turn
    readers, writers = %i[READABLE WRITABLE].map do |kind|
      @reading.values.select { |_, events| events.anybits?(IO.const_get(kind)) }.map(&:first)
    end
    limit = @sleeping.values.min&.then { |at| [at - now, 0].max }
    readable, writable, = IO.select([@awake, *readers], writers, nil, limit)
    @awake.read_nonblock(1_000) if readable&.include?(@awake)
    ready = @mutex.synchronize { @ready.shift(@ready.size) }
    ready.each { |fiber| fiber.resume(:unblocked) if fiber.alive? }
    found = [*readable, *writable]
    @reading.select { |_, (io, _)| found.include?(io) }.each { |fiber, (_, events)| fiber.resume(events) }
    @sleeping.select { |_, at| at <= now }.each_key { |fiber| fiber.resume(false) }
  end
end
