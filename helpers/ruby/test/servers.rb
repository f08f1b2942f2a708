# frozen_string_literal: true

# Servers and a broken network for the tests: all on loopback, on their own ports, and ended with the test.

require "fileutils"
require "redis"
require "socket"
require "tmpdir"

ROOT = File.expand_path("../../..", __dir__)
MODULE = ENV.fetch("MORTISE_MODULE", "#{ROOT}/target/release/libmortise.so")
SERVER = ENV.fetch("MORTISE_SERVER", "redis-server")

def eventually(seconds = 60)
  ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
  loop do
    value = yield
    return value if value
    raise "not within #{seconds} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends

    sleep 0.01
  end
end

# Runs the block in a forked child, and returns its result.
def in_child
  reader, writer = IO.pipe
  pid = fork do
    reader.close
    writer.puts yield
  rescue Exception => error
    writer.puts error.full_message
  ensure
    writer.close
    exit!
  end
  writer.close
  reader.read
ensure
  reader.close
  Process.wait(pid)
end

class TestServer
  CLAIMS = [] # held until the process ends

  # A port that no other test of any language gets, even while its server is down. The process that listens 2,500 above owns it,
  # and it is below the range of outgoing connections.
  def self.claim_port
    loop do
      port = rand(10_000...12_500)
      CLAIMS << TCPServer.new("127.0.0.1", port + 2_500)
      TCPServer.new("127.0.0.1", port).close
      return port
    rescue Errno::EADDRINUSE
      next
    end
  end

  attr_reader :port

  # With `plain`, a server that does not know locks.
  def initialize(*options, sentinel: nil, plain: false)
    @port, @folder = TestServer.claim_port, Dir.mktmpdir("mortise-ruby-")
    @arguments = ["--port", @port, "--bind", "127.0.0.1", "--save", "", "--dir", @folder, *(["--loadmodule", MODULE] unless plain), *options]
    if sentinel
      File.write("#{@folder}/sentinel.conf", "port #{@port}\nbind 127.0.0.1\ndir #{@folder}\n#{sentinel}")
      @arguments = ["#{@folder}/sentinel.conf", "--sentinel"]
    end
    start
  end

  def start
    @process = spawn(SERVER, *@arguments.map(&:to_s), out: File::NULL, err: File::NULL, in: File::NULL)
    @admin = nil
    eventually do
      raise "the server did not start" if Process.wait(@process, Process::WNOHANG)

      call("PING") == "PONG"
    rescue Redis::BaseConnectionError
      false
    end
  end

  def call(*command)
    (@admin ||= Redis.new(host: "127.0.0.1", port: @port, reconnect_attempts: 3)).call(*command)
  end

  def info(section = "lock")
    call("INFO", section).lines.to_h { |line| line.chomp.split(":", 2).then { |name, value| [name, value] } }
  end

  def count(field)
    info["lock_#{field}"].to_i
  end

  def waiters(key)
    queue(key).size
  end

  def queue(key)
    info = call("LOCK.INFO", key)
    info ? info.each_slice(2).to_h["queue"].map { |waiter| waiter.each_slice(2).to_h } : []
  end

  def holds(key)
    info = call("LOCK.INFO", key)
    info ? info.each_slice(2).to_h["holds"].map { |hold| hold.each_slice(2).to_h } : []
  end

  def held?(key)
    call("EXISTS", key) == 1
  end

  # How many connections clients with this name have.
  def connections(name)
    clients.count { |client| client.include?(" name=#{name} ") }
  end

  # A line for each.
  def clients
    call("CLIENT", "LIST").lines
  end

  def freeze
    Process.kill(:STOP, @process)
  end

  def thaw
    Process.kill(:CONT, @process)
  end

  def kill
    Process.kill(:KILL, @process)
    Process.wait(@process)
  end

  def close
    kill
    FileUtils.rm_rf(@folder)
  end
end

# A proxy before a server. It can hold back data in either direction, and cut connections.
class Relay
  attr_reader :port

  def initialize(port)
    @target, @pairs, @gates = port, [], { requests: true, replies: true }
    @mutex, @condition = Mutex.new, ConditionVariable.new
    @listener = TCPServer.new("127.0.0.1", 0)
    @port = @listener.addr[1]
    Thread.new { accept }
  end

  # Where new connections lead from now on.
  def lead_to(port)
    @target = port
  end

  def hold_back(way)
    @mutex.synchronize { @gates[way] = false }
  end

  def pass_all
    @mutex.synchronize do
      @gates.each_key { |way| @gates[way] = true }
      @condition.broadcast
    end
  end

  def cut
    @pairs.shift(@pairs.size).flatten.each { |socket| shut(socket) }
  end

  def close
    @listener.close
    cut
    pass_all
  end

  private

  def accept
    loop do
      near = @listener.accept
      far = TCPSocket.new("127.0.0.1", @target)
      @pairs << [near, far]
      Thread.new { pump(near, far, :requests) }
      Thread.new { pump(far, near, :replies) }
    end
  rescue IOError, SystemCallError
    nil
  end

  def pump(source, sink, way)
    loop do
      data = source.readpartial(65_536)
      @mutex.synchronize { @condition.wait(@mutex) until @gates[way] }
      sink.write(data)
    end
  rescue IOError, SystemCallError
    [source, sink].each { |socket| shut(socket) }
  end

  def shut(socket)
    socket.shutdown
  rescue IOError, SystemCallError
    nil
  end
end
