#!/usr/bin/env bash
# The curl lines of README.md and docs/server.md, as they stand there, against the program.      docs.sh PROGRAM
set -euo pipefail
program=${1:?usage: docs.sh PROGRAM}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
"$program" serve --any-port 2>"$work/log" &
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
port=
for _ in $(seq 300); do
    port=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$work/log" | grep -oE '[0-9]+$' || true)
    [ -z "$port" ] || break
    sleep 0.1
done
[ -n "$port" ] || { cat "$work/log" >&2; exit 1; }
# each ```sh block is one command
awk -v dir="$work" '/^```sh$/ { n++; on = 1; next } /^```$/ { on = 0 } on { print > (dir "/" n ".sh") }' \
    "$root/README.md" "$root/docs/server.md"
n=0
for command in "$work"/*.sh; do
    sed -i "s/127\.0\.0\.1:8080/127.0.0.1:$port/; s/^curl /curl -f /" "$command"
    answer=$(bash "$command") || { cat "$command" >&2; echo "docs: that failed" >&2; exit 1; }
    case $answer in
    '{'*'}' | 'data: '*'[DONE]') n=$((n + 1)) ;;
    *) echo "docs: an answer that is none: $answer" >&2 && exit 1 ;;
    esac
done
[ "$n" -ge 9 ]
echo "docs: $n curl lines of README.md and docs/server.md ran"
