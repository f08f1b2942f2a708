# frozen_string_literal: true

# The jobs of sidekiq_test.rb. Each writes its beginning and end to a file.

$LOAD_PATH.unshift File.expand_path("../lib", __dir__)

require "mortise/sidekiq"

# Otherwise Sidekiq first checks scheduled jobs after 10 to 15 s, and then less often the more processes there are.
Sidekiq.configure_server { |config| (config.respond_to?(:[]=) ? config : config.options)[:poll_interval_average] = 0.5 }
Mortise::Sidekiq.install

module Noted
  def perform(path, seconds)
    note(path, "enter")
    sleep seconds
    note(path, "leave")
  end

  private

  def note(path, word)
    File.open(path, File::WRONLY | File::APPEND | File::CREAT) do |file|
      file.syswrite("#{word} #{Process.pid}-#{Thread.current.object_id} #{Process.clock_gettime(Process::CLOCK_MONOTONIC)}\n")
    end
  end
end

class Once
  include Sidekiq::Worker
  include Noted
  sidekiq_options lock: :until_executed, lock_ttl: 600, lock_lease: 3, lock_again_in: 0.2, retry: 25
  sidekiq_retry_in { 1 } # of a busy machine's time-outs
end

class OneAtATime
  include Sidekiq::Worker
  include Noted
  sidekiq_options lock: :while_executing, lock_lease: 1, lock_timeout: 20, retry: false
end

class TwoAtATime
  include Sidekiq::Worker
  include Noted
  sidekiq_options lock: :while_executing, lock_limit: 2, lock_lease: 1, lock_timeout: 20, retry: false
end

class Chosen
  def self.of(args)
    raise IndexError, "its record is gone" unless args.first

    args.first["id"] || Object.new
  end
end
