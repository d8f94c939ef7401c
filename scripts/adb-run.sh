#!/usr/bin/env bash
# Puts the program, the NPU's libraries and a model on a phone, and asks it something.  NOT RUN BY US: we have no device.
#   scripts/adb-run.sh MODEL.gguf "prompt" [flags of llada run]
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:?usage: scripts/adb-run.sh MODEL.gguf PROMPT [flags]} prompt=${2:?a prompt}
shift 2
dir=/data/local/tmp/llada
program=build-android/llada libraries=(build-hexagon/hexagon/libllada_npu-v*.so)
for f in "$program" "${libraries[@]}" "$model"; do
    [ -e "$f" ] || { echo "adb-run.sh: there is no $f (docs/npu.md says how it is built)" >&2 && exit 1; }
done
adb shell "mkdir -p $dir"
adb push "$program" "${libraries[@]}" "$dir/"
adb push "$model" "$dir/model.gguf"
printf -v asked '%q ' -p "$prompt" "$@"
adb shell "cd $dir && chmod 755 llada && export ADSP_LIBRARY_PATH=$dir LD_LIBRARY_PATH=/vendor/lib64 &&
    ./llada devices && ./llada run -m model.gguf --device npu $asked"
