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

# One stay inside: writes only times at which the lock was surely held.
stay = lambda do |hold|
  last = nil
  write = ->(word, at) { ledger.syswrite("#{word} #{hold.token} #{at} #{NAME}:#{Process.pid}\n") }
  4.times do
    at = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    break unless hold.held?

    write.call("enter", at) && entered << at unless last
    last = at
    sleep 0.0007
  end
  write.call("leave", last) if last
end

threads = Array.new(4) do
  Thread.new do
    lock = Mortise::Lock.new(CLIENT, KEY, lease: 1, wait: 5)
    until ended || Process.clock_gettime(Process::CLOCK_MONOTONIC) > over
      begin
        lock.synchronize(&stay)
      rescue Mortise::Error
        sleep 0.02
      end
    end
  end
end
threads.each(&:join)
Mortise.close(CLIENT, timeout: 10)
puts "done #{entered.size}"
