#!/bin/sh
# run.sh DIR SECONDS NAME...: runs the host test programs DIR/NAME, as many at a time as the host has
# CPUs, each for at most SECONDS. Prints a line for each that ends, the end of the log of each that
# failed, and a count. Exits with 1 if one failed. Logs are kept as DIR/NAME.log, and what a program
# that was built for coverage counts as DIR/NAME.profraw.

# shellcheck source=tests/host/each.sh
. "$(dirname "$0")/each.sh"

if [ "$1" = --one ]; then
    dir=$2
    limit=$3
    name=$4
    log=$dir/$name.log
    start=$(date +%s)
    LLVM_PROFILE_FILE=$dir/$name.profraw timeout "$limit" "$dir/$name" >"$log" 2>&1
    status=$?
    took=$(($(date +%s) - start))
    if [ $status -eq 0 ]; then
        echo "host: ok $name (${took} s)"
        exit 0
    fi
    why="exit $status"
    [ $status -ne 124 ] || why="no end after $limit s"
    one_failed "host: FAILED $name ($why), log $log
$(grep -h '^seed:' "$log")"
    exit 0
fi

dir=$1
limit=$2
shift 2
each "$dir" "$limit" "$@"
# What the programs of this run say that they tried: "N schedules", "N API calls", "N trials", "N starts",
# "N executions".
for name; do cat "$dir/$name.log"; done | awk '
    /^(seeds|free|generations|remote frees|faults|fuzz): / {
        for (i = 2; i < NF; i++) {
            if ($(i + 1) ~ /^schedules/) schedules += $i
            if ($(i + 1) == "API") calls += $i
            if ($(i + 1) ~ /^(trials|starts)/) faults += $i
            if ($(i + 1) == "executions") executions += $i
        }
    }
    /^mutant .*: found by/ { planted++ }
    END {
        printf "host: %.0f schedules, %.0f API calls, %.0f failures injected, %.0f inputs of fuzzers, %.0f planted faults found\n",
               schedules, calls, faults, executions, planted
    }'
echo "host: $(($# - failed)) programs passed, $failed failed"
[ $failed -eq 0 ]
