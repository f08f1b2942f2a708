# frozen_string_literal: true

# The Ruby code of the README runs unchanged.

require_relative "helper"
require "open3"

class ReadmeTest < Minitest::Test
  include Served

  HERE = File.expand_path("..", __dir__)
  GEMS = "#{ROOT}/target/helpers/ruby/gems" # where the README's own commands have installed the library

  File.read("#{HERE}/README.md").scan(/^```ruby\n(.*?)^```$/m).flatten.each_with_index do |block, number|
    define_method("test_block_#{number}_of_the_readme_runs") do
      skip "needs redis-client" if block.include?("redis-client") && !defined?(RedisClient)
      program = block.gsub(/\b6379\b/, server.port.to_s)
      gems = [GEMS, *Gem.path].join(File::PATH_SEPARATOR)
      environment = { "REDIS_URL" => "redis://127.0.0.1:#{server.port}", "GEM_PATH" => gems }
      output, status = Open3.capture2e(environment, RbConfig.ruby, "-W1", "-", stdin_data: program)
      assert status.success?, output
      queued = block.scan(/perform_async.*(?<!already)$/).size # each keeps its lock until it has run
      assert_equal queued, server.count("holders"), output
    end
  end

  def test_the_published_package_has_every_file_that_it_needs
    packed = Dir.chdir(HERE) { Gem::Specification.load("mortise-lock.gemspec").files }
    %w[README.md LICENSE-MIT LICENSE-APACHE lib/mortise/lock.rb].each { |file| assert_includes packed, file }
    assert_equal Dir.chdir(HERE) { Dir["lib/**/*.rb"] }.sort, packed.grep(/\.rb\z/).sort
  end
end
