#!/usr/bin/env bash
# A model file that is cut short while it is mapped and in use: a sentence, exit 1, no crash.
# Arguments: program, source folder.
set -euo pipefail
program=$(realpath "${1:?usage: lost_file.sh PROGRAM SOURCE_DIR}")
root=$(cd "${2:?}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$root/tests/fixtures/tiny-llada-f32.gguf" model.gguf
"$program" run -m model.gguf -q -p 'What is 4*9+57?' -n 400 --recipe vanilla --no-early >out 2>said &
pid=$!
for ((i = 0; i < 600; i++)); do # until it is mapped and the first pass may have begun
    grep -q model.gguf "/proc/$pid/maps" 2>/dev/null && break
    sleep 0.05
done
sleep 0.3
truncate -s 100000 model.gguf
rc=0
wait "$pid" || rc=$?
[ "$rc" = 1 ] || { echo "exit code $rc: $(cat said)"; exit 1; }
grep -q 'cut short while it was in use' said || { echo "said: $(cat said)"; exit 1; }
echo "lost_file: told, and ended with 1"
