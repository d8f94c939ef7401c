#!/usr/bin/env bash
# Looks for what a job needs and installs what is missing with apt when it may; else says what is missing.
#   scripts/deps.sh build     compiler, CMake and libraries
#   scripts/deps.sh test      ... and what the tests need
#   scripts/deps.sh aarch64   ... and the cross compiler, its libraries and the emulator
#   scripts/deps.sh hexagon   ... what builds the NPU's code, and the emulator
#   scripts/deps.sh ci        everything
# Quick when nothing is missing: no package tool is called then.
set -euo pipefail
job=${1:?usage: scripts/deps.sh build|test|aarch64|hexagon|ci}
missing=()  # packages we can't do without
optional=() # installed with the others, never asked for

program() { command -v "$1" >/dev/null || missing+=("$2"); } # program, package
file() { [ -e "$1" ] || missing+=("$2"); }                   # file, package
library() {                                                  # pkg-config name, package, [optional]
    if command -v pkg-config >/dev/null && pkg-config --exists "$1"; then return; fi
    if [ "${3:-}" = optional ]; then optional+=("$2"); else missing+=("$2"); fi
}

need_build() {
    program cc gcc
    file /usr/include/stdio.h libc6-dev
    program cmake cmake
    program make make
    program pkg-config pkg-config
    library libpcre2-8 libpcre2-dev
    library libutf8proc libutf8proc-dev
    library jansson libjansson-dev
    library libmicrohttpd libmicrohttpd-dev
    library libedit libedit-dev optional # line editing in `llada chat`
}
need_test() {
    need_build
    library cmocka libcmocka-dev
    program c++ g++
}
need_aarch64() {
    program aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    program qemu-aarch64 qemu-user
    local dir=/usr/lib/aarch64-linux-gnu/pkgconfig
    file $dir/libpcre2-8.pc libpcre2-dev:arm64
    file $dir/libutf8proc.pc libutf8proc-dev:arm64
    file $dir/jansson.pc libjansson-dev:arm64
    file $dir/libmicrohttpd.pc libmicrohttpd-dev:arm64
    file $dir/cmocka.pc libcmocka-dev:arm64
}
# In Debian 12 the compiler comes with the security updates.
need_hexagon() {
    program clang-22 clang-22
    program ld.lld-22 lld-22
    program llvm-objdump-22 llvm-22
    program qemu-hexagon qemu-user
}

case $job in
build) need_build ;;
test) need_test ;;
aarch64) need_test && need_aarch64 ;;
hexagon) need_test && need_hexagon ;;
ci)
    need_test
    need_aarch64
    need_hexagon
    program clang clang
    program valgrind valgrind
    program node nodejs
    program npm npm
    program chromium chromium
    program curl curl
    ;;
*) echo "deps.sh: unknown job '$job' (build, test, aarch64, hexagon, ci)" >&2 && exit 2 ;;
esac
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "These packages (Debian's names) are missing, and there is no apt-get to install them:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 1
fi
foreign=
if printf '%s\n' "${missing[@]}" | grep -q ':arm64$' && ! dpkg --print-foreign-architectures | grep -qx arm64; then
    foreign="dpkg --add-architecture arm64 && "
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo=sudo
    else
        echo "These packages are missing:" >&2
        printf '  %s\n' "${missing[@]}" >&2
        echo "Install them as root, then try again:" >&2
        echo "  ${foreign}apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
fi
echo "installing: ${missing[*]} ${optional[*]}" >&2
# Messages to stderr: what `make run` prints on stdout is the answer alone.
{
    [ -z "$foreign" ] || $sudo dpkg --add-architecture arm64
    $sudo apt-get -q -o DPkg::Lock::Timeout=300 update
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends \
        "${missing[@]}" ${optional[@]+"${optional[@]}"}
} >&2
