#!/bin/sh
# fuzz_quick.sh FUZZER RUNS [MUTANT]: the first RUNS inputs of a fuzzer, the same in each run. None of
# them may find anything; but if FUZZER was built with a planted fault, named MUTANT, one must, or
# the fuzzer is blind to it. Prints what it tried.
set -u
fuzzer=$1
runs=$2
mutant=${3:-}
name=$(basename "$fuzzer")
dict=tests/host/$name.dict
artifact=$(mktemp) || exit 1
trap 'rm -f "$artifact"' EXIT
# len_control=0: long inputs from the start, as there is no time for them to grow.
if [ -f "$dict" ]; then set -- -dict="$dict"; else set --; fi
out=$("$fuzzer" -seed=1 -runs="$runs" -timeout=20 -len_control=0 -print_final_stats=1 \
    -exact_artifact_path="$artifact" "$@" 2>&1)
status=$?
tried=$(printf '%s\n' "$out" | sed -n 's/^stat::number_of_executed_units: *//p')
found=$(printf '%s\n' "$out" | sed -n 's/^SUMMARY: *//p' | head -n 1)
if [ $status -eq 0 ] && [ "${tried:-0}" -ge "$runs" ]; then
    [ -z "$mutant" ] && echo "fuzz: $tried executions of $name" && exit 0
    echo "mutant $mutant: survived $tried executions of $name"
    exit 1
fi
if [ $status -ne 0 ] && [ -n "$mutant" ] && [ -n "$found" ] && [ -s "$artifact" ]; then
    echo "mutant $mutant: found by $name after ${tried:-?} executions: $found"
    exit 0
fi
printf '%s\n' "$out" | tail -n 60
echo "fuzz: $name ended with $status after ${tried:-?} executions; the input in base64:"
base64 "$artifact"
exit 1
