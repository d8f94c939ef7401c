#!/usr/bin/env bash
# An answer by the DSP's program in the emulator: the very text that the same code gives in this process, with so
# few addresses (4 MiB) that weights are swapped.  Arguments: program, folder of the DSP's program.
# LLADA_LONG_TESTS=1: five answers of 32 tokens.
set -euo pipefail
llada=${1:?program} dsp=${2:?folder}/npu-emulated.elf
notes=$(mktemp)
trap 'rm -f "$notes"' EXIT
ask() { "$llada" run --device npu "$@" </dev/null 2>"$notes"; }
tokens=16 questions=('What is 4*9+57?')
if [ "${LLADA_LONG_TESTS:-0}" = 1 ]; then
    tokens=32
    questions+=('Evaluate 3*6+13.' 'Evaluate (2+1)*4.' 'What is 12-5?' 'Sort: 5 2 9')
fi
for q in "${questions[@]}"; do
    here=$(ask --transport inproc -n $tokens -p "$q")
    there=$(ask --transport "loopback:$dsp" --npu-memory 4 -n $tokens -p "$q")
    [ -n "$here" ] && [ "$here" = "$there" ] || { echo "'$q': '$there' in the emulator, '$here' here" >&2 && exit 1; }
    # one line when it began, and none that it failed
    [ "$(grep '^device:' "$notes")" = "$(grep '^device: the NPU serves (loopback' "$notes")" ] || { cat "$notes" >&2 && exit 1; }
    echo "'$q': '$there'"
done

# A host that is killed takes the emulator with it.
"$llada" run --device npu --transport "loopback:$dsp" -n 32 -p 'What is 4*9+57?' </dev/null >/dev/null 2>&1 &
host=$!
emulator() { pgrep -f "npu-emulated.elf $host " >/dev/null; }
for _ in $(seq 300); do emulator && break; sleep 0.1; done
emulator || { echo "no emulator was started" >&2 && exit 1; }
kill -9 $host
for _ in $(seq 300); do emulator || exit 0; sleep 0.1; done
echo "the emulator outlives its host" >&2
exit 1
