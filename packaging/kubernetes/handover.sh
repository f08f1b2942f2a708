#!/bin/sh
# Before a pod ends: if its server is the primary, another server takes over first.
set -eu
. "$(dirname "$0")/primary.sh"

role() { redis-cli -h "$SELF" -p "$PORT" ROLE | head -n 1; }

# Any Sentinel will do. One that is not sure of a replica refuses, so ask again.
ask_for_failover() {
    for peer in $PEERS; do
        said=$(timeout 2 redis-cli -h "$peer" -p "$SENTINEL_PORT" SENTINEL FAILOVER $NAME 2>&1) || continue
        [ "$said" != OK ] || return 0
    done
    return 1
}

tries=0
asked=
while [ "$(role)" = master ]; do
    tries=$((tries + 1))
    [ $tries -le 120 ] || exit 1
    [ -n "$asked" ] || ! ask_for_failover || asked=yes
    sleep 0.5
done
