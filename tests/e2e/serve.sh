#!/usr/bin/env bash
# `llada serve` as a process: a port that is taken, and its end by SIGTERM: idle, in the middle of a pass, and at once by a
# second signal.  Arguments: the program.
set -euo pipefail
llada=${1:?usage: serve.sh PROGRAM}
work=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then kill -KILL "$server" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT
fail() { echo "serve: $*" >&2 && exit 1; }

start() { # flags...
    : >"$work/log" # before anybody looks into it
    "$llada" serve --any-port -t 1 "$@" 2>"$work/log" &
    server=$!
    port=
    for _ in $(seq 600); do
        port=$(sed -nE 's|.*http://127\.0\.0\.1:([0-9]+)/.*|\1|p' "$work/log")
        [ -z "$port" ] || return 0
        sleep 0.05
    done
    fail "it does not start: $(cat "$work/log")"
}
ask() { # path, [body]: the whole answer
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    if [ $# -gt 1 ]; then
        printf 'POST %s HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
            "$1" "${#2}" "$2" >&3
    else
        printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$1" >&3
    fi
    cat <&3
    exec 3>&-
}
until_running() {
    for _ in $(seq 600); do
        if ask /props | grep -q '"running":1'; then return 0; fi
    done
    fail "it does not run"
}
ends() { # code: waits for the server, whose exit code it must be
    local code=0
    wait "$server" || code=$?
    server=
    [ "$code" -eq "$1" ] || fail "exit code $code, not $1: $(cat "$work/log")"
}

start
[[ $(ask /health) == "HTTP/1."*" 200 "* ]] || fail "no health"
code=0
said=$("$llada" serve --port "$port" 2>&1) || code=$?
[ "$code" -eq 2 ] || fail "a port that is taken: exit code $code"
[[ $said == *"something listens there already"*"--any-port"* ]] || fail "a port that is taken: $said"
kill -TERM "$server"
ends 0

long='{"messages":[{"role":"user","content":"Tell a story."}],"max_tokens":96,"llada":{"recipe":"vanilla","early":false}}'
start
ask /v1/chat/completions "$long" >"$work/answer" &
client=$!
until_running
kill -TERM "$server"
ends 0
wait "$client"
grep -q '^HTTP/1.* 200 ' "$work/answer" || fail "what ran was not answered: $(cat "$work/answer")"
grep -q '"finish_reason":"' "$work/answer" || fail "the answer is not whole: $(cat "$work/answer")"

start
ask /v1/chat/completions "$long" >"$work/answer" 2>/dev/null &
client=$!
until_running
kill -TERM "$server"
for _ in $(seq 200); do
    ! grep -q stopping "$work/log" || break
    sleep 0.02
done
kill -TERM "$server" 2>/dev/null || true
ends 143
wait "$client" || true
echo "serve: ended by SIGTERM idle, in mid-pass, and twice"
