#!/bin/sh
# Starts the server of a pod with the settings of redis.conf and the role that Sentinel names, or else its last one.
set -eu
here=$(dirname "$0")
. "$here/primary.sh"
conf=$DATA/redis.conf

# Sentinel makes the server save its role there. Other settings saved there are replaced by those of redis.conf.
if primary=$(ask_sentinels); then
    :
elif [ -e "$conf" ]; then
    primary=$(sed -n 's/^replicaof \([^ ]*\) .*/\1/p' "$conf" | tr -d '"' | tail -n 1)
    primary=${primary:-$SELF}
else
    primary=${PEERS%% *}
fi
{
    cat "$here/redis.conf"
    printf 'bind %s\nport %s\ndir %s\nreplica-announce-ip %s\n' "$BIND" "$PORT" "$DATA" "$SELF"
    [ -z "${REDISCLI_AUTH:-}" ] || printf 'requirepass %s\nmasterauth %s\n' "$(quoted_password)" "$(quoted_password)"
    [ "$primary" = "$SELF" ] || printf 'replicaof %s %s\n' "$primary" "$PORT"
} >"$conf.new"
mv "$conf.new" "$conf"
exec redis-server "$conf"
