#!/usr/bin/env bash
# Slow clients by a published tool, and what others notice of them.      slow.sh PROGRAM [SECONDS EACH]
# Needs slowhttptest and curl (Debian packages of these names).  Traffic goes to 127.0.0.1 only.  Exit 1: somebody else
# waited for more than ten times what is usual, or a reader that takes nothing was not cut after 30 s.
set -euo pipefail
program=${1:?usage: slow.sh PROGRAM [SECONDS]}
seconds=${2:-25}
work=$(mktemp -d)
"$program" serve --any-port -t 1 --metrics 2>"$work/log" &
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
port=
for _ in $(seq 300); do
    port=$(sed -nE 's|.*http://127\.0\.0\.1:([0-9]+)/.*|\1|p' "$work/log")
    [ -z "$port" ] || break
    sleep 0.1
done
[ -n "$port" ] || { cat "$work/log" >&2; exit 1; }
url=http://127.0.0.1:$port

# Asks for so many seconds, one request after the other; a line each: what, status, milliseconds.
others() { # seconds, file
    local until=$((SECONDS + $1)) kind
    : >"$2"
    while [ $SECONDS -lt $until ]; do
        for kind in health answer; do
            local args=(-s -o /dev/null -m 60 -w "$kind %{http_code} %{time_total}\n")
            if [ $kind = answer ]; then
                args+=(-H 'Content-Type: application/json'
                    -d '{"messages":[{"role":"user","content":"hi"}],"max_tokens":4}' "$url/v1/chat/completions")
            else
                args+=("$url/health")
            fi
            curl "${args[@]}" >>"$2" || true
        done
        sleep 0.2
    done
}
median() { awk -v k="$2" '$1 == k && $2 == 200 { print $3 * 1000 }' "$1" | sort -n | awk '{ a[NR] = $1 } END { print NR ? a[int((NR + 1) / 2)] : "nan" }'; }
worst() { awk -v k="$2" '$1 == k && $2 == 200 { print $3 * 1000 }' "$1" | sort -n | tail -n 1; }
say() { # title, file
    local kind refused
    refused=$(awk '$2 != 200' "$2" | wc -l)
    printf '%-13s' "$1"
    for kind in health answer; do
        printf ' %s: median %.1f ms, at most %.1f ms;' $kind "$(median "$2" $kind)" "$(worst "$2" $kind)"
    done
    printf ' %d of %d not answered 200\n' "$refused" "$(wc -l <"$2")"
}
attack() { # title, slowhttptest arguments...
    local title=$1
    shift
    slowhttptest -l "$seconds" -p 60 "$@" >"$work/tool" 2>&1 &
    local tool=$!
    others "$seconds" "$work/now"
    wait "$tool" || true
    sed -r 's/\x1b\[[0-9;]*m//g' "$work/tool" | grep -E 'service available: *NO' >/dev/null && echo "$title: the tool says it was not available at times"
    say "$title" "$work/now"
    awk -v now="$(median "$work/now" health)" -v alone="$(median "$work/alone" health)" \
        'BEGIN { exit !(now <= 10 * alone + 50) }' || { echo "$title: others waited" >&2; exit 1; }
}

others 5 "$work/alone"
say "alone" "$work/alone"
attack "slow headers" -H -c 200 -r 50 -i 3 -x 24 -u "$url/"
attack "slow body" -B -c 200 -r 50 -i 3 -s 8192 -x 10 -f application/json -u "$url/tokenize"
attack "slow read" -X -c 200 -r 50 -w 10 -y 20 -n 5 -z 5 -k 3 -u "$url/page.js"

# One who asks for a large answer and takes nothing of it.
open() { curl -s "$url/metrics" | awk '$1 == "llada_connections" { print $2 }'; }
awk 'BEGIN { printf "{\"content\":\""; for (i = 0; i < 1500000; i++) printf "1 "; printf "\"}" }' >"$work/body"
exec 3<>"/dev/tcp/127.0.0.1/$port"
{
    printf 'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' \
        "$(stat -c %s "$work/body")"
    cat "$work/body"
} >&3
IFS= read -r status <&3 # the answer has begun; nothing more of it is taken
began=$SECONDS
[[ $status == *" 200 "* ]] || { echo "no large answer: $status" >&2; exit 1; }
others 5 "$work/now"
say "one stalls" "$work/now"
while [ "$(open)" -gt 1 ] && [ $((SECONDS - began)) -lt 90 ]; do sleep 1; done
exec 3>&-
echo "a reader that takes nothing was cut after $((SECONDS - began)) s"
[ $((SECONDS - began)) -ge 28 ] && [ $((SECONDS - began)) -lt 60 ]
