# Prints the configuration of a server without what `mortise-module enable` has put there and `disable` has switched off. Only comments of
# ours go; a snippet without its end is left alone.
function flush(    n) { for (n = 0; n < blanks; n++) print ""; blanks = 0 }
/^# Mortise: begin/ { inside = 1; count = 0; held = blanks; blanks = 0 }
inside {
    kept[count++] = $0
    if ($0 !~ /^# Mortise: end/) next
    inside = 0
    # `enable` puts one empty line before its snippet.
    blanks = held > 0 ? held - 1 : 0
    for (n = 0; n < count; n++) if (kept[n] !~ /^#/ && kept[n] != "") { flush(); print kept[n] }
    next
}
/^#mortise-off# / { next }
$0 == "" { blanks++; next }
{ flush(); print }
END {
    if (inside) { blanks = held; flush(); for (n = 0; n < count; n++) print kept[n] }
    flush()
}
