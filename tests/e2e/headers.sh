#!/usr/bin/env bash
# Every internal header compiles alone: it includes what it uses.  (Headers of one instruction set need its flags, or its
# compiler, and are compiled with their .c files.)  The public header's own test is in install.sh.
# Arguments: program (unused), source folder.
set -euo pipefail
src=${2:?source folder}
cc=${CC:-cc}
n=0
cd "$src"
for header in $(find src -name '*.h' -not -path '*/x86/*' -not -path '*/arm/*' -not -path '*/hexagon/*' | sort); do
    "$cc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Werror -fsyntax-only -Iinclude -Isrc -include "$header" -xc /dev/null || {
        echo "headers: $header does not compile alone" >&2
        exit 1
    }
    n=$((n + 1))
done
echo "headers: $n compile alone"
