#!/bin/sh
# A pod has started when its server has loaded its data.
set -eu
[ "$(redis-cli -h "$SELF" -p "${PORT:-6379}" PING)" = PONG ]
