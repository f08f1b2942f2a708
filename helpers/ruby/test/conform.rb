# frozen_string_literal: true

# The worker of the conformance run (helpers/README.md): redis-rb or redis-client.

$LOAD_PATH.unshift File.expand_path("../lib", __dir__)

require "mortise/lock"

NAME, PORT, PASSWORD = ARGV
Mortise.logger.level = Logger::FATAL

if NAME == "redis-rb"
  require "redis"
  CLIENT = Redis.new(host: "127.0.0.1", port: PORT.to_i, password: PASSWORD)
else
  require "redis-client"
  CLIENT = RedisClient.new(host: "127.0.0.1", port: PORT.to_i, password: PASSWORD)
end

class BodyError < StandardError; end

# Carries out one order each, by the name of the order.
class Orders
  ROUNDS, POOL = 5, 3 # of each task, and permits, of one object that tasks share

  def initialize
    @mutex, @holds, @blocks = Mutex.new, {}, Hash.new { |blocks, handle| blocks[handle] = Queue.new }
  end

  def carry_out(verb, handle, *words)
    say(handle, send(verb, handle, *words))
  rescue Mortise::Lost
    say(handle, verb == "block" ? "caught lost" : "lost")
  rescue Mortise::Unreachable => error
    say(handle, "unreachable #{error.message.tr("\n", " ")}")
  rescue StandardError => error
    say(handle, "refused #{error.message.tr("\n", " ")}")
  end

  def acquire(handle, keys, lease, wait, renew: true)
    lock = Mortise::Lock.new(CLIENT, keys.split(","), lease: lease.to_i / 1000.0, renew: renew)
    @holds[handle] = lock.acquire(wait: wait == "ever" ? nil : wait.to_i / 1000.0)
    @holds[handle] ? "granted" : "busy"
  end

  def fixed(handle, keys, lease, wait)
    acquire(handle, keys, lease, wait, renew: false)
  end

  def extend(handle, lease)
    @holds[handle].extend(lease.to_i / 1000.0)
    "extended"
  end

  def held(handle)
    @holds[handle].held? ? "held" : "lost"
  end

  def release(handle)
    @holds[handle].release
    "released"
  rescue Mortise::Error => error
    raise unless error.instance_of?(Mortise::Error)

    "not held"
  end

  def block(handle, key, lease)
    signal = @mutex.synchronize { @blocks[handle] }
    Mortise::Lock.new(CLIENT, key, lease: lease.to_i / 1000.0).synchronize do
      say(handle, "inside")
      raise BodyError if signal.pop == :fail
    end
    "left"
  rescue BodyError => error
    error.cause.is_a?(Mortise::Lost) ? "caught body with lost" : "caught body"
  end

  def leave(handle)
    @mutex.synchronize { @blocks[handle] } << :leave
    nil
  end

  def fail(handle)
    @mutex.synchronize { @blocks[handle] } << :fail
    nil
  end

  def share(_handle, kind, key, tasks)
    lock = { "lock" => -> { Mortise::Lock.new(CLIENT, key) }, "read" => -> { Mortise::ReadLock.new(CLIENT, key) },
             "permits" => -> { Mortise::Semaphore.new(CLIENT, key, POOL) } }.fetch(kind).call
    inside = most = entered = 0
    count = ->(more) { @mutex.synchronize { (inside += more) && (most = [most, inside].max) && (entered += [more, 0].max) } }
    Array.new(tasks.to_i) do
      Thread.new do
        ROUNDS.times do
          lock.synchronize do
            count.call(1)
            sleep 0.001
          ensure
            count.call(-1)
          end
        end
      end
    end.each(&:join)
    "done #{entered} #{most}"
  end

  private

  def say(handle, text)
    @mutex.synchronize { $stdout.syswrite("#{handle} #{text}\n") } if text
  end
end

orders = Orders.new
$stdin.each_line do |line|
  verb, handle, *words = line.split
  if verb == "exit"
    $stdout.syswrite("#{handle} leaves nothing\n")
    exit
  end
  Thread.new { orders.carry_out(verb, handle, *words) }
end
Mortise.close(CLIENT)
