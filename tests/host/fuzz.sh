#!/bin/sh
# fuzz.sh DIR SECONDS NAME...: runs the fuzzers DIR/NAME, as many at a time as the host has CPUs, each
# for SECONDS and from what its corpus DIR/NAME.corpus holds. Prints a line for each that ends, the end
# of the log of each that failed, and a sum. Exits with 1 if one failed.

# shellcheck source=tests/host/each.sh
. "$(dirname "$0")/each.sh"

if [ "$1" = --one ]; then
    dir=$2
    seconds=$3
    name=$4
    log=$dir/$name.log
    dict=tests/host/$name.dict
    if [ -f "$dict" ]; then set -- "-dict=$dict"; else set --; fi
    mkdir -p "$dir/$name.corpus"
    if timeout $((seconds + 60)) "$dir/$name" "-max_total_time=$seconds" -timeout=10 -print_final_stats=1 \
        "-artifact_prefix=$dir/$name." "$@" "$dir/$name.corpus" >"$log" 2>&1; then
        echo "fuzz: ok $name ($seconds s), $(awk '/number_of_executed_units/ { print $2 }' "$log") executions," \
            "$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1)"
        exit 0
    fi
    one_failed "fuzz: FAILED $name, log $log"
    exit 0
fi

dir=$1
seconds=$2
shift 2
each "$dir" "$seconds" "$@"
for name; do cat "$dir/$name.log"; done | awk -v fuzzers=$# -v seconds="$seconds" -v failed=$failed '
    /number_of_executed_units/ { sum += $2 }
    END { printf "fuzz: %d fuzzers, %d s each, %.0f executions, %d failed\n", fuzzers, seconds, sum, failed }'
[ $failed -eq 0 ]
