#!/usr/bin/env bash
# Errors of our encoders against those of llama.cpp's released libraries, on the same values, with and without weights:
# ours must be no larger.
# usage: tests/peer/quant.sh BUILD [FOLDER]      BUILD: where libllada.a is; FOLDER keeps the libraries (from npm).
# Needs npm and a C compiler.  Not part of `make test`.
set -eu
build=$(realpath "${1:?usage: quant.sh BUILD [FOLDER]}")
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${2:-build-peer}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
bins=$dir/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
[ -d "$bins" ] || npm install --no-save --ignore-scripts --prefix "$dir" @node-llama-cpp/linux-x64@3.22.1
cc -std=c11 -O2 -I"$root/src" -I"$root/include" "$root/tests/peer/peer_quant.c" -o "$dir/peer_quant" \
    "$build/libllada.a" "$bins/libggml-base.so" -lm -Wl,-rpath,"$bins"
"$dir/peer_quant" plain
"$dir/peer_quant"
