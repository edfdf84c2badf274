#!/bin/sh
# run.sh DIR SECONDS NAME...: runs the host test programs DIR/NAME, as many at a time as the host has
# CPUs, each for at most SECONDS. Prints a line for each that ends, the end of the log of each that
# failed, and a count. Exits with 1 if one failed. Logs are kept as DIR/NAME.log, and what a program
# that was built for coverage counts as DIR/NAME.profraw.

# One program; DIR/NAME.failed is there if it failed.
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
    touch "$dir/$name.failed"
    why="exit $status"
    [ $status -ne 124 ] || why="no end after $limit s"
    # In one piece, whatever else ends meanwhile.
    printf '%s\n' "host: FAILED $name ($why), log $log
$(grep -h '^seed:' "$log")
$(tail -n 40 "$log" | sed 's/^/    /')"
    exit 0
fi

dir=$1
limit=$2
shift 2
for name; do rm -f "$dir/$name.failed"; done
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh "$0" --one "$dir" "$limit" || exit 1
passed=0
failed=0
for name; do
    if [ -e "$dir/$name.failed" ]; then
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done
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
echo "host: $passed programs passed, $failed failed"
[ $failed -eq 0 ]
