# Functions that the other scripts share.
#
# REDISCLI_AUTH is the password of servers and Sentinels, which redis-cli reads, too; unset means no password.
# SELF is this pod's name in the network, PEERS the names of all of them, DATA its volume, PORT and SENTINEL_PORT where servers and
# Sentinels listen: on BIND, which is every address unless it is given. NAME is what Sentinel calls the primary.
PORT=${PORT:-6379}
SENTINEL_PORT=${SENTINEL_PORT:-26379}
BIND=${BIND:-* -::*}
NAME=mortise

# The password as redis.conf has it between quotation marks.
quoted_password() { printf '"%s"' "$(printf '%s' "$REDISCLI_AUTH" | sed 's/[\\"]/\\&/g')"; }

# The name of the primary according to most Sentinels that answer; fails if none does.
ask_sentinels() {
    answers=$(for peer in $PEERS; do
        timeout 2 redis-cli -h "$peer" -p "$SENTINEL_PORT" SENTINEL get-master-addr-by-name $NAME 2>/dev/null | head -n 1 || true
    done)
    for answer in $(printf '%s\n' "$answers" | sort | uniq -c | sort -rn | awk '{ print $2 }'); do
        # An error is not a name.
        case " $PEERS " in *" $answer "*) printf '%s\n' "$answer"; return ;; esac
    done
    return 1
}
