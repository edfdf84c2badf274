# shellcheck shell=sh
# each.sh, to be sourced by a script that runs programs DIR/NAME, one when it is called as
# "SCRIPT --one DIR LIMIT NAME".

# each DIR LIMIT NAME...: calls the script so for each NAME, as many at a time as the host has CPUs.
# Sets `failed` to how many said so by one_failed.
each() {
    dir=$1
    limit=$2
    shift 2
    for name; do rm -f "$dir/$name.failed"; done
    printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh "$0" --one "$dir" "$limit" || exit 1
    failed=0
    for name; do
        [ ! -e "$dir/$name.failed" ] || failed=$((failed + 1))
    done
}

# one_failed WHAT: DIR/NAME has failed. Prints WHAT and the end of the log, in one piece, whatever else
# ends meanwhile.
one_failed() {
    touch "$dir/$name.failed"
    printf '%s\n' "$1
$(tail -n 40 "$dir/$name.log" | sed 's/^/    /')"
}
