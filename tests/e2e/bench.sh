#!/bin/sh
# The benchmark scripts run and print their tables; what they time here is too small to mean anything.
# usage: bench.sh LLADA SOURCE_DIR
set -eu
llada=$1 src=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
model=$src/models/tiny-llada-q8_0.gguf
python3 "$src/bench/forward.py" -m "$model" --rows 1,4 --rounds 1 --reps 1 --llada "$llada" --svg "$out/plot.svg" >"$out/table"
grep -q '^| 4 | .* % |$' "$out/table"
grep -q '</svg>' "$out/plot.svg"
python3 "$src/bench/endtoend.py" -m "$model" --tokens 24 --passes 2 --llada "$llada" >"$out/table"
grep -q '^| 24 | llada, recipe llada, 3 a pass \* |' "$out/table"
# four passes at 6 a pass, of which two are run
grep -q '^| 24 | llada, recipe llada, 6 a pass \* | [0-9.]* | 4 |' "$out/table"
