# frozen_string_literal: true

# Locks beside what Rails caches, on the same server and with the same prefix: for ActiveSupport::Cache::RedisCacheStore.

require "active_support"
require "active_support/cache"
require "active_support/cache/redis_cache_store"
require_relative "lock"

module Mortise
  module RailsCache
    # A `Mortise::Lock` by the cache's own connections.
    def lock(name, **options)
      Lock.new(redis, normalize_key("lock:#{send(:expanded_key, name)}", nil), **options)
    end

    # What is cached under `name`, also a cached nil or false; if there is nothing, one process computes it while the others wait.
    def fetch_once(name, wait: 10, **options)
      read = -> { bypass_local_cache { read_multi(name, **options) } } # the local cache of a request also keeps what was missing
      found = read.call
      return found[name] if found.key?(name)

      lock(name, wait: wait).synchronize do
        found = read.call
        found.key?(name) ? found[name] : yield.tap { |value| write(name, value, options) }
      end
    end
  end
end

ActiveSupport::Cache::RedisCacheStore.include(Mortise::RailsCache)
