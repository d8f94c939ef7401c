#!/usr/bin/env bash
# Scores of whole passes against llama.cpp's released libraries, on files of random weights of every architecture:
#   F32: no score more than 1e-3 from the peer's.
#   Q8_0, Q4_0, Q4_K, F16: no further from the peer's result on the same values in F32 than the peer itself is (root
#   mean square of all scores).  Of mixtures that is asked of the middle row of most of five files: where two experts
#   are nearly as good as each other, rounding decides, in either program, and all scores of a row change.
# usage: tests/peer/logits.sh PROGRAM [FOLDER]      FOLDER keeps the libraries, which npm brings, and the models.
# Needs npm, a C compiler and python3 with numpy (Debian's python3-numpy).  Not part of `make test`.
set -eu
program=$(realpath "${1:?usage: logits.sh PROGRAM [FOLDER]}")
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${2:-build-peer}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
python=${PYTHON:-/usr/bin/python3}

bins=$dir/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
[ -d "$bins" ] || npm install --no-save --ignore-scripts --prefix "$dir" @node-llama-cpp/linux-x64@3.22.1
# One variant of the CPU code alone: the peer would choose by the machine, and a comparison should say with what.
mkdir -p "$dir/haswell"
ln -sf "$bins/libggml-cpu-haswell.so" "$bins/libggml-base.so" "$dir/haswell/"
cc -std=c11 -O2 "$root/tests/peer/peer_logits.c" -o "$dir/peer_logits" \
    "$bins"/libllama.v*.so "$bins"/libggml.v*.so "$bins/libggml-base.so" -Wl,-rpath,"$bins"

ids() { "$python" -c "import random; random.seed($1); print(','.join(str(random.randrange($2)) for _ in range($3)))"; }

failures=0 tests=0
# compare ARCH TYPE N SIZES...: one model, N tokens
compare() {
    local arch=$1 type=$2 n=$3 how=both
    shift 3
    [ "$arch" = llama ] && how=causal
    local model=$dir/$arch.gguf exact=$dir/$arch-exact.gguf list
    list=$(ids "$n" 500 "$n")
    (cd "$root/tests/ref" && "$python" make_model.py "$model" --arch "$arch" --type "$type" "$@" &&
        "$python" make_model.py "$exact" --arch "$arch" --type "$type" --decoded "$@")
    "$program" logits -q -m "$model" --tokens "$list" --out "$dir/ours.f32"
    "$dir/peer_logits" "$dir/haswell" "$model" "$list" "$dir/peer.f32" $how
    "$dir/peer_logits" "$dir/haswell" "$exact" "$list" "$dir/exact.f32" $how
    tests=$((tests + 1))
    "$python" - "$dir" "$arch $type n=$n $*" "$type" "$n" <<'PY' || failures=$((failures + 1))
import sys

import numpy as np

ours, peer, exact = (np.fromfile("%s/%s.f32" % (sys.argv[1], f), np.float32).astype(float) for f in ("ours", "peer", "exact"))
rms = lambda x: np.sqrt((x * x).mean())
middle = lambda x: np.sqrt(np.median((x * x).reshape(int(sys.argv[4]), -1).mean(1)))
error = middle if "moe" in sys.argv[2] else rms
far, peers = error(ours - exact), error(peer - exact)
most = abs(ours - exact).max()
fine = ours.size == exact.size and (most < 1e-3 if sys.argv[3] == "f32" else far <= max(peers, 1e-5))
print("%-52s ours: %.2e, most %.2e   peer: %.2e   scores: %.1f%s" %
      (sys.argv[2], far, most, peers, rms(exact), "" if fine else "   FURTHER"))
sys.exit(not fine)
PY
}

# mixture TYPE N
mixture() {
    local before=$failures wrong
    for seed in 1 2 3 4 5; do compare llada-moe "$1" "$2" --seed $seed; done
    wrong=$((failures - before)) tests=$((tests - 4))
    failures=$((before + (wrong > 2)))
}

for arch in llada dream llada-moe llama; do
    compare $arch f32 33
    compare $arch f32 1 --layers 1
    compare $arch f32 97 --layers 5 --kv 4
    compare $arch f32 24 --kv 1 --embd 192 --ff 320 --heads 6
    for type in f16 q8_0 q4_0 q4_K; do
        if [ $arch = llada-moe ]; then mixture $type 40; else compare $arch $type 40; fi
    done
done
compare llada f32 17 --tied
compare llama f32 40 --factors
compare llada-moe f32 50 --experts 64 --used 8 --embd 128 --ff 32 --heads 4
compare llada-moe f32 9 --experts 4 --used 4
echo "logits: $((tests - failures)) passed, $failures failed"
[ $failures -eq 0 ]
