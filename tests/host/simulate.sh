#!/bin/sh
# simulate.sh DIR CALLS JOBS: JOBS processes of DIR/mm_seeds_test, each with schedules of its own,
# that together make CALLS calls of the API. Prints what each did and the sums; exits with 1 if one
# failed, after the end of its log. MM_FIRST_SEED says where the first one begins.
set -u
dir=$1
calls=$2
jobs=$3
seed=${MM_FIRST_SEED:-$(date +%s)000000}
pids=
log() {
    echo "$dir/simulate.$1.log"
}
for job in $(seq "$jobs"); do
    # 2^40 schedules apart
    MM_FIRST_SEED=$((seed + (job << 40))) MM_CALLS=$((calls / jobs + 1)) "$dir/mm_seeds_test" \
        >"$(log "$job")" 2>&1 &
    pids="$pids $!"
done
# shellcheck disable=SC2086
trap 'kill $pids 2>/dev/null; exit 1' INT TERM
job=0
failed=0
for pid in $pids; do
    job=$((job + 1))
    if ! wait "$pid"; then
        failed=$((failed + 1))
        echo "simulate: FAILED, log $(log $job)"
        tail -n 40 "$(log $job)" | sed 's/^/    /'
    fi
    grep -h '^seeds: .* schedules' "$(log $job)"
done
# shellcheck disable=SC2046
set -- $(for job in $(seq "$jobs"); do grep -h '^seeds: .* schedules' "$(log "$job")"; done |
    awk '{ schedules += $2; calls += $4 } END { printf "%.0f %.0f", calls, schedules }')
echo "simulate: $1 calls of the API in $2 schedules, $failed of $jobs processes failed"
[ "$failed" -eq 0 ] && [ "$1" -ge "$calls" ]
