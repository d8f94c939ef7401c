#!/bin/sh
# The server as a published client and a browser see it.      run.sh PROGRAM [PROMPTS [FOLDER FOR SCREENSHOTS]]
# Needs npm, and Chromium at /usr/bin/chromium.
set -eu
if [ $# -lt 1 ]; then
    echo "usage: run.sh PROGRAM [PROMPTS [FOLDER]]" >&2
    exit 2
fi
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
prompts=${2:-500}
shots=${3:+$(mkdir -p "$3" && cd "$3" && pwd)}
cd "$(dirname "$0")"
npm ci --ignore-scripts >/dev/null
bash docs.sh "$program"
node client.mjs "$program" "$prompts"
node page.mjs "$program" $shots
