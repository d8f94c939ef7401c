#!/usr/bin/env bash
# What the sources may include and call: the arrows of the architecture, and the rules a compiler does not know.
# Then a self-test: each rule must catch a line planted against it in a copy of the tree.
# Arguments: program (unused), source folder.
set -euo pipefail
root=$(cd "${2:?usage: arrows.sh PROGRAM SOURCE_DIR}" && pwd)

# Prints one line for each offence in the tree $1, or in only its file $2.
offences() {
    (
        cd "$1"
        find include src app server bench examples tests -name '*.[ch]' -type f -not -path '*/node_modules/*' \
            2>/dev/null | LC_ALL=C sort >"$list"
        # shellcheck disable=SC2046 # names of our own, without blanks
        LC_ALL=C awk -v list="$list" -f "$rules" ${2:-$(cat "$list")}
    )
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
list=$work/list
rules=$work/rules.awk
cat >"$rules" <<'AWK'
function say(what) { print FILENAME ":" FNR ": " what }

# The area a file belongs to: what the arrows are drawn between.
function area_of(path) {
    if (path == "include/llada.h") return "llada.h"
    if (path ~ /^src\/tools\.h$/) return "tools.h"
    if (path ~ /^src\/device\/cpu\/(x86|arm)\//) return "isa"
    if (path ~ /^src\/device\/(cpu|npu|sim)\//) { sub(/^src\//, "", path); sub(/\/[^\/]*$/, "", path)
        if (path ~ /^device\/cpu/) return "device/cpu"
        if (path ~ /^device\/npu/) return "device/npu"
        return "device/sim" }
    if (path ~ /^src\/[^\/]*$/) return "api"
    if (path ~ /^src\//) { sub(/^src\//, "", path); sub(/\/.*$/, "", path); return path }
    sub(/\/.*$/, "", path)
    return path
}

# Where "name" included from a file in dir lies: beside it, in src, in include, or under the root.
function resolve(dir, name) {
    if ((dir "/" name) in exists) return dir "/" name
    if (("src/" name) in exists) return "src/" name
    if (("include/" name) in exists) return "include/" name
    return name in exists ? name : ""
}

# The line without comments, and with string and character literals emptied.
function code(line,    out, c, i, n, q) {
    out = ""
    n = length(line)
    for (i = 1; i <= n; i++) {
        c = substr(line, i, 1)
        if (in_comment) { if (substr(line, i, 2) == "*/") { in_comment = 0; i++ } continue }
        if (substr(line, i, 2) == "/*") { in_comment = 1; i++; out = out " "; continue }
        if (substr(line, i, 2) == "//") break
        if (c == "\"" || c == "'") {
            for (q = c; ++i <= n && (c = substr(line, i, 1)) != q; ) if (c == "\\") i++
            out = out q q
            continue
        }
        out = out c
    }
    return out
}
function calls(text, names) { return text ~ ("(^|[^A-Za-z0-9_])(" names ")[ \t]*\\(") }

BEGIN {
    while ((getline line < list) > 0) exists[line] = 1
    # A area may include its own files, llada.h, and these.
    may["base"] = ""
    may["format"] = "base"
    may["text"] = "format base"
    may["graph"] = "base"
    may["device"] = "graph format base"
    may["device/cpu"] = "device isa graph format base"
    may["device/npu"] = "device graph format base"
    may["model"] = "format graph text base"
    may["decode"] = "model graph device base"
    may["device/sim"] = "decode model graph device format base"
    may["api"] = "base format text graph device device/cpu device/npu device/sim model decode tools.h"
    may["isa"] = "base"
    may["app"] = "tools.h server"
    may["server"] = ""
    may["bench"] = "tools.h"
    may["examples"] = ""
    may["llada.h"] = ""
    may["tools.h"] = "base"
    for (a in may) { n = split(may[a], to, " "); for (i = 1; i <= n; i++) allowed[a, to[i]] = 1 }
}

FNR == 1 {
    area = area_of(FILENAME)
    dir = FILENAME
    sub(/\/[^\/]*$/, "", dir)
    in_src = FILENAME ~ /^src\//
    # the kernel table asks which processor this is; a transport opens the vendor's library
    may_ask_os = FILENAME ~ /^src\/(base\/(os[a-z_]*|mem)|device\/cpu\/(kern|features)[a-z_]*|device\/npu\/transport[a-z_]*)\.c$/
    is_thread_file = FILENAME ~ /^src\/base\/(pool|task|monitor)\.c$/
    is_dsp_only = FILENAME ~ /^src\/device\/npu\/dsp\/hexagon\// # another processor's code, by its compiler alone
    in_comment = 0
    if ($0 !~ /^\/\*/) say("does not begin with a comment that says what the file is for")
}
FNR == 1001 { say("more than 1000 lines") }

/^[ \t]*#[ \t]*include/ && area != "tests" {
    if (match($0, /"[^"]*"/)) {
        name = substr($0, RSTART + 1, RLENGTH - 2)
        path = resolve(dir, name)
        target = path == "" ? "" : area_of(path)
        if (path == "")
            say("includes \"" name "\", which is not in the tree")
        else if (area == "isa" && target == "device/cpu") {
            if (path !~ /\/kern[a-z0-9_]*\.h$/) say("an ISA folder includes " path ": only kern*.h and base")
        } else if (area == "isa" && target == "llada.h")
            say("an ISA folder includes llada.h")
        else if (area == "device/npu" && path == "src/device/cpu/part.h")
            ; # what a device leaves to the CPU
        else if (target != area && target != "llada.h" && !((area, target) in allowed))
            say("arrow the wrong way: " area " includes " path)
    } else if (match($0, /<[^>]*>/)) {
        name = substr($0, RSTART + 1, RLENGTH - 2)
        if (in_src && !may_ask_os && name ~ /^(sys\/|linux\/|unistd\.h|fcntl\.h|dirent\.h|signal\.h|sched\.h|dlfcn\.h)/ &&
            !(is_thread_file && name == "signal.h"))
            say("<" name "> outside base/os*.c")
        if (in_src && name == "pthread.h" && !is_thread_file)
            say("<pthread.h> outside base/pool.c, task.c and monitor.c")
        if (name == "microhttpd.h" && (area != "server" || microhttpd++)) say("a second file includes <microhttpd.h>")
    }
    next
}

{
    text = code($0)
    if (!in_src) next
    if (calls(text, "malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|alloca") &&
        FILENAME != "src/base/mem.c")
        say("memory that does not come from base/mem.h")
    if (calls(text, "printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|abort|exit|_exit|_Exit|quick_exit|getenv|secure_getenv|assert"))
        say("the library never prints, exits, aborts or reads the environment")
    if (area != "isa" && !is_dsp_only && FILENAME != "src/base/compiler.h" &&
        (text ~ /__builtin|__attribute|__restrict|__extension__|__sync_|__atomic_|__thread|__int128|__typeof|__asm|__label__/ ||
         calls(text, "typeof|asm") || (text ~ /^[ \t]*#[ \t]*pragma/ && text !~ /pragma[ \t]+STDC/)))
        say("a compiler extension outside base/compiler.h")
}
AWK

found=$(offences "$root")
if [ -n "$found" ]; then
    printf '%s\n' "$found" >&2
    exit 1
fi
echo "arrows: $(wc -l <"$list") files, no offence"

# ---------------------------------------------------------------- self-test

copy=$work/tree
mkdir -p "$copy"
for d in include src app server tests; do
    [ ! -d "$root/$d" ] || (cd "$root" && find "$d" -name '*.[ch]' -type f -not -path '*/node_modules/*' -exec cp --parents {} "$copy" \;)
done
planted=0
# file, its text after the head comment, words of the complaint
plant() {
    local file=$copy/$1 kept=$work/kept
    mkdir -p "$(dirname "$file")"
    rm -f "$kept"
    if [ -e "$file" ]; then cp "$file" "$kept"; else echo '/* planted */' >"$file"; fi
    printf '%b\n' "$2" >>"$file"
    if [[ $(offences "$copy" "$1") != *"$3"* ]]; then
        echo "self-test: '$2' planted in $1 was not caught as '$3'" >&2
        exit 1
    fi
    if [ -e "$kept" ]; then cp "$kept" "$file"; else rm "$file"; fi
    planted=$((planted + 1))
}
plant src/base/planted.c '#include "graph/graph.h"' 'arrow the wrong way: base includes src/graph/graph.h'
plant src/format/planted.c '#include "text/tok.h"' 'arrow the wrong way: format'
plant src/text/planted.h '#include "model/model.h"' 'arrow the wrong way: text'
plant src/graph/planted.c '#include "device/device.h"' 'arrow the wrong way: graph'
plant src/model/planted.c '#include "device/device.h"' 'arrow the wrong way: model'
plant src/device/cpu/planted.c '#include "model/model.h"' 'arrow the wrong way: device/cpu'
plant src/decode/planted.c '#include "text/tok.h"' 'arrow the wrong way: decode'
plant src/device/cpu/x86/planted_avx2.c '#include "graph/graph.h"' 'arrow the wrong way: isa'
plant src/device/cpu/x86/planted_avx2.c '#include "llada.h"' 'an ISA folder includes llada.h'
plant app/planted.c '#include "decode/recipe.h"' 'arrow the wrong way: app'
plant server/planted.c '#include "model/model.h"' 'arrow the wrong way: server'
plant include/llada.h '#include "base/mem.h"' 'arrow the wrong way: llada.h'
plant src/base/planted.c '#include "base/nowhere.h"' 'which is not in the tree'
plant src/format/planted.c '#include <sys/mman.h>' '<sys/mman.h> outside base/os'
plant src/format/planted.c '  #  include <fcntl.h>' '<fcntl.h> outside base/os'
plant src/device/npu/planted.c '#include "device/cpu/cpu.h"' 'arrow the wrong way: device/npu'
plant src/decode/planted.c '#include <pthread.h>' '<pthread.h> outside base/pool.c'
plant src/text/planted.c 'void *f(void) { return malloc(3); }' 'memory that does not come'
plant src/text/planted.c 'void f(void *p) { /* note */ free (p); }' 'memory that does not come'
plant src/text/planted.c 'void f(void) { printf("x"); }' 'the library never prints'
plant src/api.c 'void f(void) { const char *h = getenv("HOME"); }' 'the library never prints'
plant src/base/planted.c 'int f(int x) { return __builtin_popcount(x); }' 'a compiler extension'
plant src/base/planted.c '#pragma GCC optimize("fast-math")' 'a compiler extension'
plant src/base/planted.c "$(printf 'int x;\\n%.0s' $(seq 1 1001))" 'more than 1000 lines'
plant app/planted.c '#include <microhttpd.h>' 'a second file includes <microhttpd.h>'
echo 'int x;' >"$copy/src/base/planted.c"
[[ $(offences "$copy" src/base/planted.c) == *"does not begin with a comment"* ]] || {
    echo "self-test: a file without a head comment was not caught" >&2
    exit 1
}
# and what only looks like an offence is none
printf '%s\n' '/* planted: free(x), printf("") and __builtin_x() in a comment' ' * malloc(3) on its second line */' \
    'const char *s = "call abort() or free(p)"; // exit(1)' 'int my_free(int c); int q = '"'\"'"'; int snprintf_x;' \
    >"$copy/src/base/planted.c"
false_alarm=$(offences "$copy")
[ -z "$false_alarm" ] || { printf 'self-test, false alarm: %s\n' "$false_alarm" >&2; exit 1; }
echo "arrows: $((planted + 1)) planted offences caught"
