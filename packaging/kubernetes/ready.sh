#!/bin/sh
# A pod is ready when its server is the primary, or has all data of the primary.
set -eu
. "$(dirname "$0")/primary.sh"
redis-cli -h "$SELF" -p "$PORT" INFO replication | tr -d '\r' | grep -qxE 'role:master|master_link_status:up'
