#!/bin/sh
# run.sh OUT JOBS [NAME...]: has SPIN check the lines of tests/model/checks (all of them, or those
# named), JOBS at a time. Prints a line for each and a count; exits with 1 if one did not come out as
# it must. Logs and, for a fault that was not expected, the run that leads to it: OUT/MODEL.NAME/.
# HOSTCC compiles the verifiers, each of which may take MODEL_TIMEOUT=300 seconds.
set -u
here=$(dirname "$0")
here=$(cd "$here" && pwd)
root=$(cd "$here/../.." && pwd)
cc=${HOSTCC:-clang}
limit=${MODEL_TIMEOUT:-300}

# one OUT MODEL KIND NAME OPTION...: one line of the table.
one() {
    dir=$1/$2.$4
    model=$2 kind=$3 name=$4
    shift 4
    rm -rf "$dir"
    mkdir -p "$dir" && cd "$dir" || exit 1
    search=-DSAFETY args=
    case $kind in
    ends) search=-DNP args=-l ;;
    cycle | open-cycle) search=-DNP args="-l -f" ;; # one that a fair scheduler would allow, too
    esac
    level=-O0
    [ "$1" != -O2 ] || { level=$1; shift; }
    start=$(date +%s)
    # NOREDUCE: `provided` forbids partial-order reduction. COLLAPSE is lossless.
    # shellcheck disable=SC2086
    if ! spin -a "$@" "$here/$model.pml" >spin.log 2>&1 ||
        ! $cc $level -w -DNOREDUCE -DCOLLAPSE -DNFAIR=3 -DMEMLIM=3072 $search -o pan pan.c \
            >>spin.log 2>&1; then
        echo "model: FAILED $model $name (does not build), log $dir/spin.log"
        sed 's/^/    /' spin.log
        exit 0
    fi
    # shellcheck disable=SC2086
    timeout "$limit" ./pan -m1000000 -w22 $args >log 2>&1
    status=$?
    took=$(($(date +%s) - start))
    states=$(awk '/states, stored/ { print $1; exit }' log)
    found=nothing
    if grep -q 'assertion violated' log; then
        found=assert
    elif grep -q 'invalid end state (at' log; then
        found=hang
    elif grep -q 'progress cycle (at' log; then
        found=cycle
    elif [ $status -ne 0 ] || ! grep -q 'errors: 0' log ||
        grep -q 'Search not completed\|search depth too small\|out of memory' log; then
        found="no end of the search"
    fi
    rm -f pan pan.[bchmpt]
    case $kind:$found in
    pass:nothing | ends:nothing) echo "model: ok $model $name: $states states ($took s)" ;;
    assert:assert | hang:hang | cycle:cycle) echo "model: ok $model $name: caught after $states states" ;;
    open-assert:assert | open-hang:hang | open-cycle:cycle)
        echo "model: OPEN $model $name: a fault of the code as it is ($found), see docs/MODEL.md" ;;
    open-*:nothing)
        echo "model: FAILED $model $name: is mended? Make it a check that passes, log $dir/log" ;;
    *)
        echo "model: FAILED $model $name: $kind wanted, $found found, log $dir/log"
        if ls ./*.trail >/dev/null 2>&1; then
            spin -t -p -g "$@" -k "$model.pml.trail" "$here/$model.pml" >trace 2>&1
            echo "    trace: $dir/trace"
        fi
        grep 'pan:' log | sed 's/^/    /'
        ;;
    esac
}

# The models name what they mirror: a function that is gone means that a model is out of date.
mirrors() {
    grep -H '^ \* mirrors ' "$here"/*.pml | sed 's/^\([^:]*\):[^:]* mirrors /\1 /; s/: / /' |
        while read -r model file names; do
            for f in $names; do
                grep -q "^[a-z].*[ *]$f(" "$root/$file" ||
                    echo "model: FAILED $(basename "$model") mirrors $f(), which is not in $file"
            done
        done
}

if [ "$1" = --one ]; then
    shift
    one "$@"
    exit 0
fi

out=$1
jobs=$2
shift 2
mkdir -p "$out"
out=$(cd "$out" && pwd)
only=" $* "
{
    mirrors
    sed 's/#.*//' "$here/checks" | while read -r model kind name options; do
        [ -n "$model" ] || continue
        case $only in
        "  " | *" $name "*) echo "$out $model $kind $name $options" ;;
        esac
    done | xargs -P "$jobs" -L 1 sh "$here/run.sh" --one
} 2>&1 | tee "$out/results"
passed=$(grep -c '^model: ok ' "$out/results")
failed=$(grep -c '^model: FAILED ' "$out/results")
open=$(grep -c '^model: OPEN ' "$out/results")
caught=$(grep -c '^model: ok .* caught after' "$out/results")
states=$(awk '/^model: ok .* states \(/ { n += $5 } END { print n + 0 }' "$out/results")
echo "model: $states states, $caught broken variants caught, $open faults of the code open"
echo "model: $passed checks passed, $failed failed"
[ "$failed" -eq 0 ] && [ $((passed + open)) -gt 0 ]
