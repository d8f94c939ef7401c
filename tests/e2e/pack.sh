#!/usr/bin/env bash
# pack as people use it: a packed file gives the bytes of the file it was made from - scores, texts, evaluations - in
# every command; and what is said, refused and left behind.
# Arguments: program, source folder.
set -euo pipefail
program=$(realpath "${1:?usage: pack.sh PROGRAM SOURCE_DIR}")
root=$(cd "${2:?}" && pwd)
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
cd "$work"
original=$root/tests/fixtures/tiny-llada-f32.gguf
shipped=$root/models/tiny-llada-q8_0.gguf
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
scores() { "$program" logits -q -m "$1" --tokens 5,17,100,42,284,284,7 --out "$2" "${@:3}"; }
answer() { "$program" run -q -m "$1" -p 'What is 2+3?' -n 32 "${@:2}"; }
same() {
    local a b
    a=$("$1" "$2" "${@:4}")
    b=$("$1" "$3" "${@:4}")
    [ -n "$a" ] && [ "$a" = "$b" ] || fail "$*: not the same text"
    ok
}

"$program" quantize -q "$original" q4_0.gguf --type q4_0
"$program" quantize -q "$original" q6_k.gguf --type q6_k
"$program" quantize -q "$original" f16.gguf --type f16
for file in "$original" "$shipped" "$root"/tests/fixtures/net-*.gguf q4_0.gguf q6_k.gguf f16.gguf; do
    says 0 'packed.gguf' "$program" pack -m "$file" -o packed.gguf
    scores "$file" a.f32
    scores packed.gguf b.f32
    cmp a.f32 b.f32 || fail "$file: packed it scores otherwise"
    scores "$file" a.f32 --cpu-mask none -t 1
    scores packed.gguf b.f32 --cpu-mask none -t 1
    cmp a.f32 b.f32 || fail "$file: packed it scores otherwise in plain C"
    ok
done

"$program" pack -q -m "$shipped" -o packed.gguf -t 1 >out 2>&1 || fail "pack -q: $(cat out)"
[ ! -s out ] || fail "--quiet said: $(cat out)"
"$program" pack -q -m "$shipped" -o again.gguf -t 3
cmp packed.gguf again.gguf || fail "the packed file depends on the number of threads"
ok

# every command
for recipe in vanilla dual parallel speculate; do same answer "$shipped" packed.gguf --recipe $recipe; done
same answer "$shipped" packed.gguf --no-mmap
{
    echo '{"prompt": "Evaluate 3*6+13.", "answer": "31"}'
    echo '{"prompt": "Solve 72-14.", "answer": 58}'
} >set.jsonl
evaluate() {
    "$program" eval -q -m "$1" --set set.jsonl -n 32 --json | sed 's/"seconds": [0-9.e+-]*//'
}
same evaluate "$shipped" packed.gguf
says 0 '"rows": 8' "$program" bench forward -m packed.gguf --rows 8 --reps 1 --json
says 0 'packed: 43 of 57 tensors' "$program" info packed.gguf
says 0 '"packed": true' "$program" info --json packed.gguf
says 0 '"packed": false' "$program" info --json "$shipped"
says 0 '' "$program" tokenize -m packed.gguf -p 'some words'
if command -v curl >/dev/null; then
    : >served
    "$program" serve -m packed.gguf --any-port >served 2>&1 &
    server=$!
    for ((i = 0; i < 100; i++)); do
        url=$(grep -o 'http://127.0.0.1:[0-9]*' served | head -1) && break
        sleep 0.1
    done
    curl -sS "$url/v1/completions" -H 'Content-Type: application/json' \
        -d '{"prompt": "2+3=", "max_tokens": 8, "seed": 1}' >reply || fail "serve: $(cat served)"
    grep -q '"text"' reply || fail "serve: $(cat reply)"
    kill "$server"
    wait "$server" || true
    server=
    ok
fi

# refusals
says 2 'packed already' "$program" pack -m packed.gguf -o x.gguf
says 2 'quantise the file it was packed from' "$program" quantize packed.gguf x.gguf --type q4_0
says 2 'is a file: convert takes a checkpoint folder' "$program" convert packed.gguf x.gguf
says 2 'two files' "$program" pack -m "$shipped"
says 2 'two files' "$program" pack -o x.gguf
says 2 'are the same file' "$program" pack -m packed.gguf -o ./packed.gguf
says 2 'not GGUF' "$program" pack -m "$root/README.md" -o x.gguf
says 1 'none.gguf' "$program" pack -m none.gguf -o x.gguf
says 1 'cannot write' "$program" pack -m "$shipped" -o none/x.gguf
says 2 'unexpected argument' "$program" pack -m "$shipped" -o x.gguf more
sed 's/general.architecture\(.\{12\}\)llada/general.architecture\1qwen2/' "$shipped" >foreign.gguf
says 2 'general.architecture is qwen2' "$program" pack -m foreign.gguf -o x.gguf
sed 's/t32.version/t32.virsion/' packed.gguf >foreign.gguf
says 2 't32.version is missing' "$program" run -m foreign.gguf -p x
head -c 3000000 packed.gguf >cut.gguf
says 2 'cut short' "$program" run -m cut.gguf -p x
[ ! -e x.gguf ] || fail "a refused file was written"
[ -z "$(find . -name '.*.gguf.*')" ] || fail "temporary files were left"
echo "pack: $checks checks"
