# frozen_string_literal: true

$LOAD_PATH.unshift File.expand_path("../lib", __dir__)

require "minitest/autorun"
require "timeout"
require "connection_pool"
require "mortise/lock"
require_relative "servers"

Mortise.logger.level = Logger::FATAL
Redis.silence_deprecations = true if Redis.respond_to?(:silence_deprecations=)

# A server that the tests share, emptied for each.
module Served
  def server
    $server ||= TestServer.new.tap { |server| Minitest.after_run { server.close } } # rubocop:disable Style/GlobalVars
  end

  def setup
    server.call("FLUSHALL")
  end

  def teardown
    Mortise.close(timeout: 30)
  end

  # A thread whose `value` fails the test if the thread does not end.
  def in_thread(&block)
    Thread.new(&block).tap do |thread|
      thread.report_on_exception = false
      def thread.value
        join(60) or Kernel.raise "the thread did not end"
        super
      end
    end
  end
end

# For each installed kind of client, by name, a function that makes one for a port.
CLIENTS = { redis: ->(port, **options) { Redis.new(host: "127.0.0.1", port: port, **options) } }
CLIENTS[:pool] = ->(port, **options) { ConnectionPool.new(size: 2) { CLIENTS[:redis].call(port, **options) } }
if defined?(RedisClient)
  CLIENTS[:redis_client] = ->(port, **options) { RedisClient.new(host: "127.0.0.1", port: port, **options) }
  CLIENTS[:pooled] = ->(port, **options) { RedisClient.config(host: "127.0.0.1", port: port, **options).new_pool }
end
