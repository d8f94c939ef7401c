#!/usr/bin/env bash
# What --mem-budget does on a model that is larger than the budget: peak memory of the process with the page cache
# charged to it (a control group), seconds a pass, overlap, and the same tokens as without a budget; beside it the
# mapped file under the same limit, and the runtime with its parts left out one by one.
# Arguments: program, model.  Environment: BUDGETS ("2G 3G"), PASSES (3), TOKENS (8), THREADS (0: all), ABLATE (2G).
# Needs root for control groups (version 1: memory.max_usage_in_bytes; version 2: memory.peak).
set -euo pipefail
llada=${1:?usage: memory.sh PROGRAM MODEL} model=${2:?usage: memory.sh PROGRAM MODEL}
budgets=${BUDGETS:-2G 3G} passes=${PASSES:-3} tokens=${TOKENS:-8} ablate=${ABLATE-2G}
work=$(mktemp -d)
group=
trap 'rm -rf "$work"; [ -z "$group" ] || rmdir "$group" 2>/dev/null || true' EXIT

bytes() { python3 -c 'import sys; s=sys.argv[1]; print(int(float(s[:-1])*1024**(" KMGT".index(s[-1]))) if s[-1] in "KMGT" else int(s))' "$1"; }

# The group of this shell, or its top, in the hierarchy that controls memory.
make_group() {
    if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
        version=1 group=/sys/fs/cgroup/memory/llada-bench-$$
    else
        version=2 group=/sys/fs/cgroup/llada-bench-$$
    fi
    mkdir "$group"
}
# limit_bytes command...: runs the command in the group with that limit (0: none); sets peak.
in_group() {
    local limit=$1 rc=0
    shift
    make_group
    if [ "$version" = 1 ]; then
        [ "$limit" = 0 ] || echo "$limit" >"$group/memory.limit_in_bytes"
    else
        [ "$limit" = 0 ] || echo "$limit" >"$group/memory.max"
    fi
    (echo $BASHPID >"$group/cgroup.procs" && exec "$@") || rc=$?
    if [ "$version" = 1 ]; then peak=$(cat "$group/memory.max_usage_in_bytes"); else peak=$(cat "$group/memory.peak"); fi
    rmdir "$group"
    group=
    return $rc
}
# Pages of the model out of the cache, so that every run begins alike.
forget() { python3 -c 'import os,sys; f=os.open(sys.argv[1],os.O_RDONLY); os.fsync(f); os.posix_fadvise(f,0,0,os.POSIX_FADV_DONTNEED)' "$model"; }

row() { # name limit_bytes limit_of_group flags...
    local name=$1 budget=$2 limit=$3
    shift 3
    forget
    if ! in_group "$limit" "$llada" bench generate -m "$model" -q --json --recipe parallel --prompt 8 -n "$tokens" \
        -c $((8 + tokens)) --per-pass 1 --passes "$passes" ${THREADS:+-t $THREADS} "$@" >"$work/out" 2>"$work/err"; then
        printf '| %s | failed: %s |\n' "$name" "$(tail -1 "$work/err")"
        return
    fi
    NAME=$name BUDGET=$budget PEAK=$peak python3 - "$work/out" <<'PY'
import json, os, sys
d = json.loads(open(sys.argv[1]).read())
m = d.get("memory", {})
each = d["seconds"] / d["passes"]
budget, peak = int(os.environ["BUDGET"]), int(os.environ["PEAK"])
share = f"{100 * peak / budget:.1f} %" if budget else "-"
streamed = m.get("streamed", 0)
n = d["passes"]
print(f"| {os.environ['NAME']} | {peak / 2**20:.0f} MiB | {share} | {streamed / 1e9:.2f} GB | {each:.2f} s | "
      f"{m.get('transfer_seconds', 0) / n:.2f} s | {m.get('stall_seconds', 0) / n:.2f} s | "
      f"{100 * m.get('overlap', 0):.0f} % | {d['tokens_hash'][:8]} |")
PY
}

"$llada" devices --profile -m "$model" -q
echo
echo "| run | peak | of the budget | streamed a pass | a pass | transfers | waiting | overlap | tokens |"
echo "|---|---|---|---|---|---|---|---|---|"
row "mapped, no limit" 0 0
for b in $budgets; do
    n=$(bytes "$b")
    row "--mem-budget $b" "$n" 0 --mem-budget "$b"
    row "mapped, limit $b" "$n" "$n"
done
[ -n "$ablate" ] || exit 0
n=$(bytes "$ablate")
row "naive: each operator's weights read when it runs" "$n" 0 --mem-budget "$ablate" --without residency,layout,pipeline
row "+ residency plan" "$n" 0 --mem-budget "$ablate" --without layout,pipeline
row "+ compact layout" "$n" 0 --mem-budget "$ablate" --without pipeline
row "+ pipeline" "$n" 0 --mem-budget "$ablate"
