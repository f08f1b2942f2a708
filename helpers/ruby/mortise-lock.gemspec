# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "mortise-lock"
  spec.version = "0.1.0"
  spec.summary = "Locks that the Redis or Valkey server knows, for redis-rb, redis-client, Sidekiq, Active Job and Rails' cache"
  spec.description = "Waiting in a queue in the server without polling, readers and writers, semaphores, fencing tokens, and " \
                     "reported losses. Needs a server with the module Mortise."
  spec.authors = ["the Mortise developers"]
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.homepage = "https://mortise.example/mortise"
  spec.metadata = {
    "rubygems_mfa_required" => "true",
    "source_code_uri" => "https://mortise.example/mortise",
    "bug_tracker_uri" => "https://mortise.example/mortise/issues",
    "changelog_uri" => "https://mortise.example/mortise/blob/main/CHANGELOG.md"
  }
  spec.required_ruby_version = ">= 3.0"
  spec.files = Dir["lib/**/*.rb", "README.md", "LICENSE-*"]
end
