#!/usr/bin/env bash
# The program as people and scripts meet it: exit codes, sentences, shapes of JSON, pipes, full disks, Ctrl-C.
# Arguments: program, source folder.
set -u
llada=${1:?usage: cli.sh PROGRAM SOURCE_DIR}
root=${2:?usage: cli.sh PROGRAM SOURCE_DIR}
case $llada in /*) ;; *) llada=$PWD/$llada ;; esac
root=$(cd "$root" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for v in $(env | sed -n 's/^\(LLADA_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
question='Evaluate 3*6+13.'
right='3*6=18. 18+13=31. Answer: 31'
tests=0 failures=0

fail() {
    failures=$((failures + 1))
    printf 'FAIL: %s\n' "$*" >&2
    sed 's/^/    stderr: /' err >&2
    head -c 600 out | sed 's/^/    stdout: /' >&2
}

# expect CODE [WORDS...] -- ARGS...: runs the program; WORDS must be in what it says on stderr.
expect() {
    local code=$1 words=() got w
    shift
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    tests=$((tests + 1))
    "$llada" "$@" >out 2>err <"${input:-/dev/null}"
    got=$?
    [ $got -eq "$code" ] || { fail "'$*' gave $got, not $code"; return; }
    for w in ${words[@]+"${words[@]}"}; do
        grep -qF -- "$w" err || { fail "'$*' does not say '$w'"; return; }
    done
    # wrong use: nothing on stdout, one sentence (the line on the built-in model may stand before it)
    if [ "$code" -eq 2 ] && [ -s out ]; then fail "'$*' wrote to stdout"; fi
}

# has WORDS...: in the output of the last run
has() {
    local w
    for w in "$@"; do
        tests=$((tests + 1))
        grep -qF -- "$w" out || fail "the output has no '$w'"
    done
}

is() {
    tests=$((tests + 1))
    [ "$(cat out)" = "$1" ] || fail "the output is not '$1'"
}

# The output is one JSON value a line; checked where something can read it.
json() {
    tests=$((tests + 1))
    if command -v node >/dev/null; then
        node -e 'require("fs").readFileSync("out","utf8").trim().split("\n").forEach(JSON.parse)' 2>/dev/null || fail "not JSON"
    elif command -v python3 >/dev/null; then
        python3 -c 'import json; [json.loads(l) for l in open("out")]' 2>/dev/null || fail "not JSON"
    fi
}

# ---------------------------------------------------------------- wrong use

expect 2 'a command is needed' --
expect 2 'rnu' 'run' -- rnu
expect 2 'command' -- -m x
expect 2 '--steps' '128-t' '--steps 128 -t' -- run --steps 128-t 4
expect 2 '--steps' '0x10' -- run --steps 0x10
expect 2 '--steps' '-1' -- run --steps -1
expect 2 '--steps' '99999999999' -- run --steps 99999999999
expect 2 '--step' '--steps' -- run --step 8
expect 2 '--temp' 'nan' -- run --temp nan
expect 2 '--seed' -- run --seed ''
expect 2 '--diffusion_steps' '--diffusion-steps' -- run --diffusion_steps 8
expect 2 '--model' '--mdoel' -- run --mdoel x
expect 2 'needs a value' -- run -p
expect 2 'unexpected' 'hello' -- run hello
expect 2 'empty' -- run -p ''
expect 2 'empty' -- run -p ' '
expect 2 'empty' -- run
expect 2 '-p' '-f' -- run -p a -f b
expect 2 'nowhere.gguf' -- run -m nowhere.gguf -p a
expect 2 'nowhere.txt' -- run -f nowhere.txt
expect 2 'recipe' 'nothing' -- run --recipe nothing -p a
expect 2 '--top-k' -- run --top-k -4 -p a
expect 2 '--raw' '--system' -- run --raw --system a -p b -q
expect 2 '--set' -- eval
expect 2 'nowhere.jsonl' -- eval --set nowhere.jsonl
expect 2 '--tokens' -- logits
expect 2 '99999' -- logits --tokens 1,99999 --out x
expect 2 'trace' -- trace
expect 2 'nowhere' -- trace nowhere
expect 2 '7x' -- tokenize --ids 7x
expect 2 'positions' -- run -q -c 8 -p "$question"
LLADA_TAU=x expect 2 'LLADA_TAU' -- run -p a
printf 'GIF89a, no model' >bad.gguf
expect 2 'bad.gguf' -- run -m bad.gguf -p a
expect 2 'bad.gguf' -- info bad.gguf
printf '{"prompt": "a"\n' >bad.jsonl
expect 2 'bad.jsonl, line 1' -- eval --set bad.jsonl
printf '{"answer": "a"}\n' >bad.jsonl
expect 2 'line 1' 'prompt' -- eval --set bad.jsonl
printf '\n\n' >bad.jsonl
expect 2 'no questions' -- eval --set bad.jsonl
printf '{"tua": 1}' >bad.json
expect 2 'bad.json' 'tua' -- run --settings bad.json -p a
printf '{"recipe": "x", "settings": {}, "runs": []}' >golden.json
expect 2 'golden.json' 'settings' -- run --settings golden.json -p a

# ---------------------------------------------------------------- help and version

expect 0 -- --version
has "llada $(sed -n 's/^#define LLADA_VERSION "\(.*\)"/\1/p' "$root/include/llada.h")"
expect 0 -- --help
for c in run chat eval info tokenize logits trace; do
    expect 0 -- --help
    has "$c"
    expect 0 -- "$c" --help
    has "llada $c"
    [ "$c" = trace ] || has '--model'
    expect 0 -- help "$c"
done
expect 0 -- run --steps x --help
expect 0 -- help recipes
has '--tau-draft' '--n-stable' 'vanilla'
expect 0 -- run --help
has '--tau' '--recipe' 'vanilla'
[ "$(wc -l <out)" -lt 70 ] || fail "run --help has $(wc -l <out) lines"
expect 2 'unknown flag --foo' -- info --help --foo
expect 2 "there is no command 'recipe'" -- help recipe

# ---------------------------------------------------------------- run

expect 0 'built in' 'curl' 'passes' -- run -p "$question"
is "$right"
expect 0 -- run -q -p "$question"
is "$right"
[ ! -s err ] || fail 'run -q says something'
expect 0 -- run -q -m "$root/models/tiny-llada-q8_0.gguf" -p "$question" --no-mmap -t 1
is "$right"
printf '%s\n' "$question" >q.txt
input=q.txt expect 0 -- run -q
is "$right"
input=q.txt expect 0 -- run -q -f -
is "$right"
expect 0 -- run -q -f q.txt
is "$right"
printf '\357\273\277%s\r\n' "$question" >bom.txt
expect 0 -- run -q -f bom.txt
is "$right"
printf '\377\376E\000' >utf16.txt
expect 2 'UTF-16' 'utf16.txt' -- run -q -f utf16.txt
printf 'a\000b' >nul.txt
expect 2 'NUL' -- run -q -f nul.txt
expect 0 -- run -q --raw -f nul.txt -n 4
printf '\377\300\200\355\240\200\365\200' >bytes.txt
expect 0 -- run -q -f bytes.txt -n 4 --json
json
expect 0 -- run -q --recipe vanilla --diffusion-block-length 16 -n 32 -p "$question"
is "$right"
LLADA_RECIPE=vanilla LLADA_QUIET=1 expect 0 -- run -n 32 -p "$question" --json
has '"recipe": "vanilla"'
[ ! -s err ] || fail 'LLADA_QUIET says something'
expect 0 'no effect' -- run --steps 8 -p "$question"
expect 0 -- run -q -n 3 -p "$question" --json
has '"n_tokens": 3' '"finish_reason": "length"'
expect 0 -- run -q -p "$question" --json
json
has '"text": "'"$right"'"' '"tokens": [' '"n_tokens": 22' '"passes": ' '"rows": ' '"seconds": ' \
    '"finish_reason": "stop"' '"recipe": "llada"' '"sweeps": ' '"jobs": ' '"rev_rows": ' '"full": ' '"edits": ' \
    '"remasks": ' '"tokens_per_pass": ' '"canvas": 128' '"seed": 0'

# ---------------------------------------------------------------- trace

expect 0 -- run -q -p "$question" --trace t.jsonl
cp t.jsonl out
json
tests=$((tests + 1))
head -n 1 t.jsonl | grep -q '"recipe":"llada".*"n_prompt":19' || fail 'the header of the trace'
head -n 1 t.jsonl | grep -Eq '"times":\{"seconds":[0-9.e-]+,"passes":\[\[1,[0-9]+,[0-9.e-]+,[0-9.e-]+\],' ||
    fail 'no times in the trace'
"$llada" run -q -p "$question" --trace again.jsonl >/dev/null 2>err
[ "$(sed 1d t.jsonl)" = "$(sed 1d again.jsonl)" ] || fail 'the same run has other entries'
sed -n 2p t.jsonl | grep -q '^{"step":1,"rows":"all","shadow":\[\],"events":\[\["commit",0,' || fail 'the first entry'
"$llada" run -q -p "$question" --recipe llada-v1 --trace v1.jsonl >/dev/null 2>err
grep -q '"merge":\[' v1.jsonl || fail 'no merge in the trace'
grep -q '"jobs":\[\[.*,"serial"\]' v1.jsonl || fail 'no times of serial jobs in the trace'
grep -q '"jobs":\[\[.*,"fused"\]' t.jsonl || fail 'no times of fused jobs in the trace'
"$llada" run -q -p "$question" --set exec=async --trace async.jsonl >/dev/null 2>err
grep -q '"jobs":\[\[.*,"async"\]' async.jsonl || fail 'no times of the worker in the trace'
expect 0 -- run -q -p "$question" --recipe parallel --trace b.jsonl
sed -n 2p b.jsonl | grep -Eq '^\[\[[0-9]+,[0-9]+,[01]\.[0-9]+' || fail 'the first entry of a block recipe'
expect 0 -- trace t.jsonl -o t.html
tests=$((tests + 1))
grep -q '<svg' t.html || fail 'no map in the report'
expect 0 -- trace async.jsonl
has 'revision (worker)' 'Overlapped' 'Worker idle'
expect 0 -- trace b.jsonl
has '</html>' 'dense passes'
sed 's/"times":.*}$/"was":1}/' b.jsonl >old.jsonl
expect 0 -- trace old.jsonl
has '</html>'
expect 1 '/dev/full' -- run -q -p "$question" --trace /dev/full

# ---------------------------------------------------------------- info, tokenize, logits

expect 0 -- info
has 'tiny-llada' 'vocabulary' '1216'
cp "$root/tests/fixtures/net-llada.gguf" net.gguf
expect 0 -- info net.gguf --plan --mem-budget 64M
has 'stays' 'streams' 'a pass' 'most alive'
expect 0 -- info net.gguf --plan --mem-budget 64M --json
has '"held_parts"' '"work_live"'
expect 2 'go together' -- info net.gguf --plan
expect 2 'smallest that can is' -- info net.gguf --plan --mem-budget 10K
expect 2 'is not a size' -- run --mem-budget 2X -p x
expect 2 'is not a size' -- run --mem-budget 0x10 -p x
expect 2 'smallest that can is' -- run -m net.gguf --mem-budget 10K -p x
expect 2 'in memory already' -- run --mem-budget 1G -p x
expect 2 'none of residency' -- bench generate -m net.gguf --mem-budget 1M --without plan
expect 2 'needs -m FILE' -- devices --profile
XDG_CACHE_HOME=$PWD/cache expect 0 -- devices --profile -m net.gguf
has 'storage' 'memory'
XDG_CACHE_HOME=$PWD/cache expect 0 -- devices --profile -m net.gguf --json
json
has '"read_rate"'
XDG_CACHE_HOME=/dev/full expect 1 'cannot' -- devices --profile -m net.gguf
expect 0 -- devices
has 'cpu' 'threads'
expect 0 -- devices --json
json
has '"usable": true'
expect 0 -- info --json
has '"n_vocab": 1216' '"arch": "llada"' '"mask_id": 1212'
expect 0 -- tokenize -p "$question"
ids=$(cat out)
expect 0 -- tokenize --ids "$ids"
is "$question"
tests=$((tests + 1))
[ "$(tail -c 1 out | od -An -c | tr -d ' ')" = '\n' ] || fail 'tokenize --ids ends without a newline'
expect 0 'blocks of 128 positions and more' -- run -p "$question" --block 128 -n 128
# what cannot be written is told before the work
expect 1 'cannot write none/t.jsonl' -- run -p "$question" --trace none/t.jsonl
[ ! -s out ] || fail "run answered before it told of the trace"
expect 1 'cannot write none/x' -- logits --tokens 1,2 --out none/x
expect 0 -- tokenize "$question" --json
json
has '"tokens": [' '"pieces": ['
expect 0 -- tokenize -p '<|endoftext|>'
[ "$(cat out)" != 1211 ] || fail 'the spelling of a special token in plain text is a special token'
expect 0 -- tokenize --special -p '<|endoftext|>'
is 1211
expect 0 -- tokenize --chat -p hi
tests=$((tests + 1))
grep -q '^1210,1213,' out || fail 'the chat layout'
input=nul.txt expect 0 -- tokenize
expect 0 -- logits -q --tokens 1,2,3 --out l.f32
tests=$((tests + 1))
[ "$(wc -c <l.f32)" -eq $((3 * 1216 * 4)) ] || fail 'the size of the scores'
expect 1 '/dev/full' -- logits -q --tokens 1 --out /dev/full
expect 1 'nowhere' -- logits -q --tokens 1 --out nowhere/l.f32

# ---------------------------------------------------------------- chat

printf 'Solve 72-14.\n\n/reset\nSolve 72-14.\n' >talk.txt
input=talk.txt expect 0 -- chat -q -n 32
is "$(printf '72-14=58. Answer: 58\n72-14=58. Answer: 58')"
printf '/quit\nSolve 72-14.\n' >talk.txt
input=talk.txt expect 0 -- chat -q
is ''

# ---------------------------------------------------------------- eval

{
    echo '{"prompt": "Evaluate 3*6+13.", "answer": "31", "reference": "Answer: 31"}'
    echo
    echo '{"prompt": "Solve 72-14.", "answer": 58, "reference": "Answer: 58"}'
    echo '{"prompt": "Solve 72-14.", "answer": "57", "reference": "Answer: 57"}'
} >set.jsonl
expect 0 -- eval -q --set set.jsonl -n 32 --json
json
has '"n": 3' '"correct": 2' '"accuracy": 0.66666666' '"passes_per_answer": ' '"tokens_per_pass": ' \
    '"rows_per_answer": ' '"seconds": ' '"ci": [' '"sweeps_per_answer": ' '"rev_rows_per_answer": ' '"revisions": ' \
    '"jobs_per_answer": ' '"recipe": "llada"' '"set": "set"' '"extract": "answer"'
[ "$(wc -l <out)" -eq 1 ] || fail 'one recipe and one set give more than one object'
expect 0 -- eval -q --set set.jsonl -n 32 --limit 1 --recipe parallel --recipe 'dual:block=16' --resume r.jsonl \
    --markdown m.md --svg p.svg
has '| parallel |' '| dual:block=16 |' 'against first'
cmp -s out m.md || fail 'the Markdown file is not the table'
grep -q '<svg' p.svg || fail 'no plot'
[ "$(wc -l <r.jsonl)" -eq 2 ] || fail 'not every answer is kept'
printf '{"key": "torn' >>r.jsonl # as a crash leaves it
expect 0 -- eval -q --set set.jsonl -n 32 --limit 2 --recipe parallel --recipe 'dual:block=16' --resume r.jsonl --json
json
has '"paired": {"against": "parallel"'
[ "$(grep -c '^{"recipe"' r.jsonl)" -eq 4 ] || fail 'finished answers ran again, or new ones were not kept'
cp out first
expect 0 -- eval -q --set set.jsonl -n 32 --limit 2 --recipe parallel --recipe 'dual:block=16' --resume r.jsonl --json
cmp -s out first || fail 'a resumed evaluation differs'
expect 0 -- eval -q --set set.jsonl -n 32 --limit 1 --extract gsm8k --json
has '"accuracy": 1.0' '"extract": "gsm8k"'
expect 1 '/dev/full' -- eval -q --set set.jsonl -n 32 --limit 1 --resume /dev/full

# ---------------------------------------------------------------- output that cannot be written

for args in "run -q -p x" "run -q --json -p x" "--help" "info" "eval -q --set set.jsonl --limit 1 -n 8 --json"; do
    tests=$((tests + 1))
    IFS=' ' read -r -a words <<<"$args"
    "$llada" "${words[@]}" >/dev/full 2>err </dev/null
    [ $? -eq 1 ] || fail "'$args' onto a full disk does not give 1"
    grep -q 'cannot write' err || fail "'$args' onto a full disk says nothing"
done
tests=$((tests + 2))
"$llada" run -q -p x >&- 2>err </dev/null
[ $? -eq 1 ] || fail 'a closed standard output does not give 1'
{ "$llada" --help 2>err </dev/null; echo $? >code; } | true
# the reader may have gone before the writer wrote, or not
[ "$(cat code)" -le 1 ] || fail 'a closed pipe gives neither 0 nor 1'

# ---------------------------------------------------------------- Ctrl-C

# A background job of a script ignores SIGINT; a program that handles it hears it all the same.
stop() {
    local code
    tests=$((tests + 1))
    "$llada" "$@" >out 2>err </dev/null &
    sleep 2 # long enough to be in the middle of it
    kill -INT $!
    wait $!
    code=$?
    [ $code -eq 130 ] || fail "'$*' gives $code on Ctrl-C, not 130"
}
stop run -q -p "$question" -n 512 --recipe vanilla --no-early
stop run -q -p "$question" -n 512 --recipe vanilla --no-early --json --trace stopped.jsonl
[ -s stopped.jsonl ] || fail 'a stopped run leaves no trace'
for i in 1 2 3 4 5 6 7 8 9 10; do sed "s/3\*6/$i*6/" set.jsonl; done >long.jsonl
stop eval -q --set long.jsonl -n 384 --recipe vanilla --no-early --resume stopped.r --json
[ ! -s out ] || fail 'a stopped evaluation prints a result'

echo "cli: $tests checks, $failures failures"
[ $failures -eq 0 ]
