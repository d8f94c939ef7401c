#!/usr/bin/env bash
# Links from our documents to files of the tree lead somewhere.  Arguments: program (unused), source folder.
set -euo pipefail
cd "${2:?source folder}"
bad=0 n=0
while IFS= read -r doc; do
    while IFS= read -r target; do
        n=$((n + 1))
        if [ ! -e "$(dirname "$doc")/$target" ]; then
            echo "$doc: there is no $target" >&2
            bad=1
        fi
    done < <(grep -oE '\]\([^)#[:space:]]+' "$doc" | cut -c3- | grep -vE '^(https?|mailto):')
done < <(find . -name '*.md' -not -path '*/node_modules/*' -not -path './build*')
echo "docs: $n links looked up"
exit $bad
