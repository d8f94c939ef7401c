#!/usr/bin/env bash
# The installed tree, moved to another place, serves a stranger: the header compiles alone as C and as C++, the shared
# library exports what the header declares and nothing else, and a program builds against it by pkg-config (shared and
# static) and by find_package (both), and answers on the model inside the library.
# Arguments: program, source folder, build folder.  Environment: CC, CXX, LLADA_SANITIZE (how the build was made).
set -euo pipefail
program=${1:?program} src=${2:?source folder} build=${3:?build folder}
cc=${CC:-cc} cxx=${CXX:-c++}
san=${LLADA_SANITIZE:+-fsanitize=$LLADA_SANITIZE}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "install: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/log"
# Moved: nothing may remember where it was installed or built.
mv "$work/first" "$work/moved prefix"
prefix="$work/moved prefix"
if grep -rIlF -e "$work/first" -e "$build" "$prefix"; then fail "the files above name a folder of the build"; fi

[[ $("$prefix/bin/llada" --version) =~ [0-9]+\.[0-9]+\.[0-9]+ ]] || fail "the installed program does not start"

# ---- the header
for std in c99 c11; do
    echo '#include <llada.h>' | "$cc" -std=$std -pedantic -Wall -Wextra -Werror -fsyntax-only -xc -I"$prefix/include" -
done
for std in c++11 c++17; do
    echo '#include <llada.h>' | "$cxx" -std=$std -pedantic -Wall -Wextra -Werror -fsyntax-only -xc++ -I"$prefix/include" -
done

# ---- exported names
lib=$(find "$prefix" -name 'libllada.so' | head -n 1)
[ -n "$lib" ] || fail "no libllada.so"
nm -D --defined-only "$lib" | awk '$2 ~ /[TDBR]/ { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"
grep -oE 'LLADA_API [^;]*' "$prefix/include/llada.h" | grep -oE '\bllada_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$work/declared"
# (a sanitizer or a coverage build exports names of its own)
if [ -z "$san" ]; then
    diff "$work/declared" "$work/exported" >&2 || fail "declared (<) and exported (>) names differ"
else
    [ -z "$(comm -23 "$work/declared" "$work/exported")" ] || fail "a declared name is not exported"
fi

# ---- programs against it
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name llada.pc)")
libdir=$(dirname "$lib")
question='What is 4*9+57?'
expected=$("$program" run -q -p "$question" </dev/null)
[ -n "$expected" ] || fail "the program gives no answer"

answers() { # how it was built, program
    local got
    got=$(LD_LIBRARY_PATH="$libdir" "$2" "$question")
    [ "$got" = "$expected" ] || fail "$1: '$got' instead of '$expected'"
    echo "install: $1 answers"
}

# pkg-config escapes the blank of the prefix for a shell: eval reads it.
eval "$cc $san -o '$work/shared' '$src/examples/answer.c' $(pkg-config --cflags --libs llada)"
answers "pkg-config, shared" "$work/shared"
case $(pkg-config --cflags llada) in
*UTF8PROC* | *PCRE2*) echo "FAIL: pkg-config --cflags tells of what is private: $(pkg-config --cflags llada)" >&2; exit 1 ;;
esac
[[ $(readelf -d "$work/shared") == *libllada.so* ]] || fail "the shared library was not linked"
eval "$cc $san -o '$work/static' '$src/examples/answer.c' \
    $(pkg-config --static --cflags --libs llada | sed 's/-lllada/-l:libllada.a/')"
answers "pkg-config, static" "$work/static"

mkdir "$work/user"
cat >"$work/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(llada 0.1 REQUIRED COMPONENTS static)
add_executable(by-shared answer.c)
target_link_libraries(by-shared llada::llada)
add_executable(by-static answer.c)
target_link_libraries(by-static llada::static)
CMAKE
cp "$src/examples/answer.c" "$work/user"
cmake -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_C_FLAGS="$san" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "find_package"; }
cmake --build "$work/user/build" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "find_package: build"; }
answers "find_package, shared" "$work/user/build/by-shared"
answers "find_package, static" "$work/user/build/by-static"
