# frozen_string_literal: true

# The worker of the common run (helpers/README.md): redis-rb or redis-client.

$LOAD_PATH.unshift File.expand_path("../lib", __dir__)

require "mortise/lock"

NAME, PORT, KEY, SECONDS, LEDGER = ARGV
Mortise.logger.level = Logger::FATAL

if NAME == "redis-rb"
  require "redis"
  CLIENT = Redis.new(host: "127.0.0.1", port: PORT.to_i)
else
  require "redis-client"
  CLIENT = RedisClient.new(host: "127.0.0.1", port: PORT.to_i)
end

ledger = File.open(LEDGER, File::WRONLY | File::APPEND | File::CREAT)
entered = Queue.new
over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS.to_f
ended = false
Thread.new do
  $stdin.read
  ended = true
end

# Appends to a list under LOCK.GUARD. It ignores errors: the lock may be lost, or the reply.
guarded = lambda do |hold|
  hold.guard("RPUSH", "list:{#{KEY}}", "write:#{hold.token}:#{NAME}")
rescue Mortise::Error
  nil
end

# One stay inside: writes only times at which the lock was certainly held.
stay = lambda do |hold, share|
  last = nil
  write = ->(word, at) { ledger.syswrite("#{word} #{hold.token} #{at} #{NAME}:#{Process.pid}#{share && " #{share}"}\n") }
  4.times do
    at = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    break unless hold.held?

    unless last
      write.call("enter", at)
      entered << at
      guarded.call(hold) unless share
    end
    last = at
    sleep 0.0007
  end
  write.call("leave", last) if last
end

lock = Mortise::Lock.new(CLIENT, KEY, lease: 1, wait: 5)
pools = (1..3).map { |permits| Mortise::Semaphore.new(CLIENT, "#{KEY}:permits", 5, permits: permits, lease: 1, wait: 5) }
reader = Mortise::ReadLock.new(CLIENT, KEY, lease: 1, wait: 5)
# Passes the lock on, and takes it over: inside a second time.
again = lambda do |hold|
  heir = "#{NAME}:#{Process.pid}:#{hold.token}"
  taken = lock.take_over(heir, hold.pass(heir, 1)) or next
  begin
    stay.call(taken, nil)
  ensure
    taken.release
  end
end
alone = lambda do |_|
  hold = lock.acquire or next
  begin
    stay.call(hold, nil)
  ensure
    (hold.token % 4).zero? ? again.call(hold) : hold.release
  end
end
reading = ->(_) { reader.synchronize { |hold| stay.call(hold, "read") } }
beside = ->(round) { pools[round % 3].synchronize { |hold| stay.call(hold, 1 + (round % 3)) } }
keys = [KEY, "#{KEY}:1", "#{KEY}:2"]
pairs = [[0, 1], [1, 2], [2, 0]].to_h { |pair| [pair.join(","), Mortise::Lock.new(CLIENT, keys.values_at(*pair), lease: 1, wait: 5)] }
several = ->(round) { pairs.to_a[round % 3].then { |share, locks| locks.synchronize { |hold| stay.call(hold, share) } } }

threads = [alone, alone, alone, alone, reading, reading, beside, beside, several, several].map do |section|
  Thread.new do
    (0..).each do |round|
      break if ended || Process.clock_gettime(Process::CLOCK_MONOTONIC) > over

      begin
        section.call(round)
      rescue Mortise::Error
        sleep 0.02
      end
    end
  end
end
threads.each(&:join)
Mortise.close(CLIENT, timeout: 10)
puts "done #{entered.size}"
