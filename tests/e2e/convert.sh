#!/usr/bin/env bash
# convert and quantize as people use them: a checkpoint folder gives the scores of the file it was made of, bit for bit;
# types, reports, refusals and exit codes.
# Arguments: program, source folder.
set -euo pipefail
program=$(realpath "${1:?usage: convert.sh PROGRAM SOURCE_DIR}")
root=$(cd "${2:?}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
checkpoint=$root/tests/fixtures/checkpoint-llada
original=$root/tests/fixtures/net-llada.gguf
checks=0

fail() {
    echo "FAIL: $*" >&2
    exit 1
}
ok() { checks=$((checks + 1)); }
# exit code, words it must say, command...
says() {
    local want=$1 words=$2 rc=0
    shift 2
    "$@" >out 2>&1 || rc=$?
    [ "$rc" = "$want" ] || fail "exit $rc, not $want: $* ($(head -3 out))"
    grep -qF -- "$words" out || fail "'$words' is not in what '$*' said: $(head -3 out)"
    ok
}
scores() { "$program" logits -q -m "$1" --tokens 5,17,100,42,284,284,7 --out "$2"; }

# convert: F16 holds the values of the file the checkpoint was made of, F32 holds them too
scores "$original" a.f32
says 0 'f16.gguf' "$program" convert "$checkpoint" f16.gguf
scores f16.gguf b.f32
cmp a.f32 b.f32 || fail "the converted file scores otherwise"
ok
for type in f32 bf16 q8_0; do
    "$program" convert "$checkpoint" $type.gguf --type $type -q >out 2>&1 || fail "convert --type $type: $(cat out)"
    [ ! -s out ] || fail "--quiet said: $(cat out)"
    scores $type.gguf b.f32
    [ "$(stat -c %s a.f32)" = "$(stat -c %s b.f32)" ] || fail "scores of $type"
    ok
done
"$program" convert "$checkpoint" one.gguf -q -t 1
cmp f16.gguf one.gguf || fail "the file depends on the number of threads"
ok
[ "$("$program" tokenize -q -m f16.gguf --json -p 'the rain in 1234')" = "$("$program" tokenize -q -m "$original" --json -p 'the rain in 1234')" ] ||
    fail "the converted tokenizer cuts otherwise"
ok

# convert: refusals
says 2 'checkpoint folder and the file to write' "$program" convert "$checkpoint"
says 2 'convert writes f16, f32, bf16 or q8_0' "$program" convert "$checkpoint" x.gguf --type q4_0
says 2 'unexpected argument' "$program" convert "$checkpoint" x.gguf more
says 2 'config.json' "$program" convert "$root/tests/fixtures" x.gguf
cp -r "$checkpoint" broken && rm broken/model-00002-of-00002.safetensors
says 2 'model-00002-of-00002.safetensors' "$program" convert broken x.gguf
cp -r "$checkpoint" swapped
cp "$checkpoint/model-00001-of-00002.safetensors" swapped/model-00002-of-00002.safetensors
says 2 'is there twice' "$program" convert swapped x.gguf
says 1 'cannot write' "$program" convert "$checkpoint" none/x.gguf
[ ! -e x.gguf ] || fail "a refused file was written"

# quantize
model=$root/tests/fixtures/tiny-llada-f32.gguf
for type in q8_0 q4_0 q6_k; do
    "$program" quantize "$model" $type.gguf --type $type -q --report >report
    grep -q "blk.0.ffn_up.weight .* F32 -> ${type^^} " report || fail "--report: $(head -3 report)"
    grep -q "output_norm.weight .* F32 -> F32 .*0.000e+00" report || fail "norms: $(grep norm report | head -1)"
    scores $type.gguf c.f32
    ok
done
"$program" quantize "$model" again.gguf --type Q8_0 -q -t 1
cmp q8_0.gguf again.gguf || fail "the quantised file depends on the number of threads"
ok
"$program" quantize "$model" km.gguf --type q4_k_m -q --report >report
grep -q 'output.weight.*Q6_K.*the head\|token_embd.weight.*Q6_K.*the head' report || fail "q4_k_m: the head"
grep -q 'ffn_down.*Q6_K.*a layer that needs more' report || fail "q4_k_m: layers"
ok
says 0 'its rows do not divide into blocks' "$program" quantize "$original" small.gguf --type q4_k
scores small.gguf c.f32
says 2 'is Q4_0 already' "$program" quantize q4_0.gguf x.gguf --type q4_k
says 2 'is Q6_K already' "$program" quantize q6_k.gguf x.gguf --type q8_0
says 0 'y.gguf' "$program" quantize q6_k.gguf y.gguf --type q8_0 --allow-requantize
says 0 'y.gguf' "$program" quantize q8_0.gguf y.gguf --type q4_0
says 2 'no type this version writes' "$program" quantize "$model" x.gguf --type q3_k
says 2 'two files and a type' "$program" quantize "$model" x.gguf
says 2 'are the same file' "$program" quantize q8_0.gguf ./q8_0.gguf --type q4_0
says 2 'cannot open none.gguf' "$program" quantize none.gguf x.gguf --type q4_0
says 2 'cannot open none' "$program" quantize "$model" x.gguf --type q4_0 --imatrix none
says 1 'cannot write none/x.gguf' "$program" quantize "$model" none/x.gguf --type q4_0
says 2 'no importance matrix' "$program" quantize "$model" x.gguf --type q4_0 --imatrix "$root/README.md"
says 2 'not GGUF' "$program" quantize "$checkpoint/config.json" x.gguf --type q4_0
[ ! -e x.gguf ] || fail "a refused file was written"

# info: from the header, also of what can't be run
says 0 'runs here      yes' "$program" info f16.gguf
says 0 '"runs": true' "$program" info --json f16.gguf
grep -q '"recipe": "vanilla"' out || fail "info --json tells no memory by recipe"
sed 's/general.architecture\(.\{12\}\)llada/general.architecture\1qwen2/' f16.gguf >foreign.gguf
says 2 'runs here      no: general.architecture is qwen2' "$program" info foreign.gguf
says 2 '"runs": false' "$program" info -q --json foreign.gguf
grep -q '"n_params": 3' out || fail "info of a foreign file: $(cat out)"
says 2 'not GGUF' "$program" info "$checkpoint/config.json"
[ -z "$(find . -name '.*.gguf.*')" ] || fail "temporary files were left"
echo "convert: $checks checks"
