#!/bin/sh
# Starts the Sentinel of a pod. It keeps its state in its own file.
set -eu
. "$(dirname "$0")/primary.sh"
conf=$DATA/sentinel.conf

if [ ! -e "$conf" ]; then
    primary=$(ask_sentinels) || primary=${PEERS%% *}
    # A Sentinel exits if its primary has no address yet.
    until timeout 2 redis-cli -h "$primary" -p "$PORT" PING >/dev/null 2>&1; do sleep 1; done
    cat >"$conf.new" <<EOF
bind $BIND
port $SENTINEL_PORT
dir $DATA
protected-mode no
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $SELF
sentinel announce-port $SENTINEL_PORT
sentinel monitor $NAME $primary $PORT 2
sentinel down-after-milliseconds $NAME ${DOWN_AFTER:-5000}
sentinel failover-timeout $NAME ${FAILOVER_TIMEOUT:-60000}
EOF
    mv "$conf.new" "$conf"
fi
# Sentinels use their own password to ask each other. A Sentinel saves the other one without quotation marks, so both are written anew.
{
    grep -v -e '^sentinel auth-pass ' -e '^requirepass ' "$conf"
    [ -z "${REDISCLI_AUTH:-}" ] || printf 'sentinel auth-pass %s %s\nrequirepass %s\n' "$NAME" "$(quoted_password)" "$(quoted_password)"
} >"$conf.new"
mv "$conf.new" "$conf"
exec redis-server "$conf" --sentinel
