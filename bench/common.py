"""common.py - what the benchmark scripts share: running both sides, medians, the machine's name."""
import json
import os
import re
import statistics
import subprocess
import sys


def run(command):
    """Standard output of a command; ends the script when it fails."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("%s\nfailed: %s" % (" ".join(map(str, command)), done.stderr.strip()[-500:]))
    return done.stdout


def run_json(command):
    """The JSON objects a command prints, a line each."""
    return [json.loads(line) for line in run(command).splitlines() if line.startswith("{")]


def median(values):
    return statistics.median(values)


def machine():
    """One line: processor, cores, load at the start."""
    name = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    features = open("/proc/cpuinfo").read().split("flags", 1)[-1].split("\n")[0].split()
    known = [f for f in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_bf16") if f in features]
    return "%s, %d threads, %s; load average %.1f at the start" % (
        name.group(1) if name else "unknown processor", os.cpu_count(), " ".join(known) or "no x86 vectors",
        os.getloadavg()[0])


def table(head, rows):
    """A Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(c) for c in row) + " |")
