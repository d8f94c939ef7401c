#!/bin/sh
# Answers of which parts are given: the given parts come back unchanged, holes are filled, mistakes are told.
# usage: infill.sh LLADA SOURCE_DIR
set -eu
llada=$1
fails=0

# want WHAT PATTERN ARGUMENTS...: the output must match the pattern (a shell one).
want() {
    what=$1 pattern=$2
    shift 2
    got=$("$llada" run -q "$@" </dev/null) || got="exit $?"
    case $got in
    $pattern) ;;
    *)
        echo "$what: got '$got'"
        fails=$((fails + 1))
        ;;
    esac
}

# refused WHAT WORDS ARGUMENTS...: exit 2 and a sentence with these words.
refused() {
    what=$1 words=$2
    shift 2
    code=0
    said=$("$llada" run -q "$@" </dev/null 2>&1) || code=$?
    case $code:$said in
    2:*"$words"*) ;;
    *)
        echo "$what: exit $code, '$said'"
        fails=$((fails + 1))
        ;;
    esac
}

q='Evaluate 3*6+13.'
want "two holes" '3\*6=?*. ?* Answer: ?*' -p "$q" --template '3*6={{4}}. {{8}} Answer: {{4}}'
want "a hole at the start" '?* Answer: 31' -p "$q" --template '{{20}} Answer: 31'
want "a hole of nothing" '3\*6=18. Answer: 31' -p "$q" --template '3*6=18. {{0}}Answer: 31'
want "a hole at the very end" '3\*6=18. 18+13=?*' -p "$q" --template '3*6=18. 18+13={{4}}'
want "before a suffix" '3\*6=18*' -p "$q" --suffix ' 18+13=31. Answer: 31' -n 8
want "block recipe" '3\*6=?*Answer: 31' -p "$q" --recipe dual --template '3*6={{12}} Answer: 31'
refused "no hole" 'no hole' -p "$q" --template 'plain'
refused "both" 'use one' -p "$q" --template '{{2}}' --suffix 'x'
refused "a huge hole" 'a hole of' -p "$q" --template '{{99999999}}'
[ "$fails" -eq 0 ] || exit 1
echo "infill: all as expected"
