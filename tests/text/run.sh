#!/bin/sh
# Compares our tokenizer with published ones (check_npm.mjs).
#     run.sh TOK_DRIVER [COUNT]      TOK_DRIVER: the program built from tok_driver.c
set -eu
if [ $# -lt 1 ]; then
    echo "usage: run.sh TOK_DRIVER [COUNT]" >&2
    exit 2
fi
driver=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
cd "$(dirname "$0")"
npm ci --ignore-scripts >/dev/null
exec node check_npm.mjs "$driver" "$@"
