#!/usr/bin/env bash
# A file that convert, quantize or pack writes is the old one or the new one, never a part: killed at random moments,
# and with no room left.  LLADA_FAULT_ROUNDS: how many kills of each (default 4; 50 is the long run).
# Arguments: program, source folder.
set -euo pipefail
program=$(realpath "${1:?usage: atomic.sh PROGRAM SOURCE_DIR}")
root=$(cd "${2:?}" && pwd)
rounds=${LLADA_FAULT_ROUNDS:-4}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "FAIL: $*" >&2
    exit 1
}
left() { find . -maxdepth 1 -name '.out.gguf.*' | wc -l; }

quantize() { "$program" quantize "$root/tests/fixtures/tiny-llada-f32.gguf" out.gguf --type q8_0 -q; }
convert() { "$program" convert "$root/tests/fixtures/checkpoint-llada" out.gguf --type q8_0 -q; }
pack() { "$program" pack -m "$root/tests/fixtures/tiny-llada-f32.gguf" -o out.gguf -q; }

for job in quantize convert pack; do
    $job
    mv out.gguf new.gguf
    echo "old" >old.gguf
    begin=$(date +%s%N)
    $job
    whole=$((($(date +%s%N) - begin) / 1000000))
    kept=0 done=0
    for ((i = 0; i < rounds; i++)); do
        cp old.gguf out.gguf
        $job &
        pid=$!
        at=$((RANDOM % (whole + 20)))
        sleep "$(printf '%d.%03d' $((at / 1000)) $((at % 1000)))"
        pkill -KILL -P "$pid" 2>/dev/null || true # the program itself, not only the shell around it
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        if cmp -s out.gguf old.gguf; then
            kept=$((kept + 1))
        elif cmp -s out.gguf new.gguf; then
            done=$((done + 1))
        else
            fail "$job, killed after $at ms, left a part of a file: $(stat -c %s out.gguf) bytes"
        fi
        [ "$(left)" -le 1 ] || fail "$job, killed, left $(left) files"
    done
    $job
    [ "$(left)" = 0 ] || fail "$job did not remove what killed ones had left"
    echo "atomic: $job killed $rounds times within $whole ms: $kept times the old file, $done times the new one"

    # no room: files may grow to 32 KB only; the signal for it is ignored, as on a full disk the write fails
    cp old.gguf out.gguf
    rc=0
    (
        trap '' XFSZ
        ulimit -f 32
        $job
    ) 2>said || rc=$?
    [ "$rc" = 1 ] || fail "$job without room: exit code $rc"
    grep -q 'cannot write' said || fail "$job without room said: $(cat said)"
    cmp -s out.gguf old.gguf || fail "$job without room touched the old file"
    [ "$(left)" = 0 ] || fail "$job without room left a temporary file"

    # Ctrl-C leaves nothing either
    $job &
    pid=$!
    sleep 0.02
    pkill -INT -P "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    cmp -s out.gguf old.gguf || cmp -s out.gguf new.gguf || fail "$job, interrupted, left a part of a file"
    [ "$(left)" = 0 ] || fail "$job, interrupted, left a temporary file"
done
echo "atomic: no room and interrupts leave the old file and nothing beside it"
