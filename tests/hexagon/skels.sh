#!/usr/bin/env bash
# What the device libraries are made of: a shared object of the right generation that exports one name, imports only
# what the device's system has, contains the HMX instructions, and is small.  A build proof, no more: none of them has
# run on a device.  Arguments: program (unused), folder of the libraries.
set -euo pipefail
cd "${2:?folder}"
allowed='HAP_power_set|HAP_mmap|HAP_munmap|HAP_mmap2|HAP_munmap2|compute_resource_[a-z_]+'
# threads: begun with their starter's priority and ended; sleeping on a word; a vector context for each worker
allowed+='|qurt_thread_(create|exit|join|get_id|get_priority)|qurt_futex_(wait|wake)|qurt_hvx_(lock|unlock)'
allowed+='|dspqueue_(import|read|write|close)' # messages by the vendor's queue
words=(9200c3fe a6e0c013 920041e2 9202e3ef a6e0e104) # table, clear, activation, weight, store
bad=0
say() { echo "$1" >&2 && bad=1; }
for arch in 73 75 79 81; do
    f=libllada_npu-v$arch.so
    head=$(llvm-readelf-22 -h "$f")
    grep -q 'Type: *DYN' <<<"$head" || say "$f: no shared object"
    grep -qi "Flags: *0x$arch" <<<"$head" || say "$f: not of generation v$arch"
    names=$(llvm-readelf-22 --dyn-syms "$f" | awk '$1 ~ /^[0-9]+:$/ && NF == 8 {print ($7 == "UND" ? "import " : "export ") $8}')
    grep -q '^import HAP_mmap' <<<"$names" || say "$f: maps nothing"
    if other=$(grep '^import' <<<"$names" | grep -vxE "import ($allowed)"); then say "$f: $other"; fi
    [ "$(grep '^export' <<<"$names")" = 'export llada_npu_skel_handle_invoke' ] || say "$f exports: $names"
    code=$(llvm-objdump-22 -d "$f" | awk '{print $6}')
    for w in "${words[@]}"; do grep -qx "$w" <<<"$code" || say "$f: no instruction $w"; done
    size=$(stat -c %s "$f")
    [ "$size" -le 65536 ] || say "$f: $size bytes, 65536 are allowed"
    echo "$f: $size bytes, $(grep -c '^import' <<<"$names") imports"
done
exit $bad
