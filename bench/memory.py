#!/usr/bin/env python3
"""memory.py - what --mem-budget does on a model that is larger than the budget, as Markdown tables.

  bench/memory.py -m MODEL.gguf [--budgets 2G,3G] [--rows 8,64] [--passes 6] [--rounds 3] [--ablate 2G]
                  [--peer PEER --peer-backend DIR] [--llada build/llada] [-t N]

Per budget: seconds a pass (median of all passes of all rounds' medians) against the limit, which is the larger of
streamed bytes / measured storage bandwidth and the seconds of the same pass without a budget on a warm cache; peak
memory with the page cache charged to the process (a control group: needs root); what was hidden; and that the tokens
are those without a budget.  Beside it, under the same limit, the mapped file and llama.cpp.  With --ablate, the runtime
put together part by part.  The storage is measured before each run of ours, on the same file, past the page cache.

PEER is a program that answers `PEER -B DIR [-nr] -t N bench MODEL ROWS REPS` with lines `n ROWS median MS ms ...` (a
harness on libllama's C API); -nr: the weights are used as the file has them, without the repacked copy that is made
otherwise, so that the mapped file can be larger than the limit."""
import argparse
import json
import os
import re
import subprocess
import tempfile

import common

PATIENCE = 240  # seconds a run of the peer may take
GROUPS_V1 = "/sys/fs/cgroup/memory"


class Group:
    """A control group of its own for one command."""

    def __init__(self, limit):
        self.v1 = os.path.exists(GROUPS_V1 + "/memory.limit_in_bytes")
        self.path = "%s/llada-bench-%d" % (GROUPS_V1 if self.v1 else "/sys/fs/cgroup", os.getpid())
        os.mkdir(self.path)
        if limit:
            self.write("memory.limit_in_bytes" if self.v1 else "memory.max", limit)

    def write(self, name, value):
        with open("%s/%s" % (self.path, name), "w") as f:
            f.write(str(value))

    def peak(self):
        with open("%s/%s" % (self.path, "memory.max_usage_in_bytes" if self.v1 else "memory.peak")) as f:
            return int(f.read())

    def run(self, command):
        """(exit code, output, peak bytes); the code is None when patience ran out."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            p = subprocess.Popen([str(c) for c in command], stdout=out, stderr=err,
                                 preexec_fn=lambda: self.write("cgroup.procs", os.getpid()))
            try:
                code = p.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                code = None
            peak = self.peak()
            os.rmdir(self.path)
            out.seek(0)
            err.seek(0)
            return code, out.read() if code == 0 else err.read(), peak


def size(text):
    return int(float(text[:-1]) * 1024 ** " KMGT".index(text[-1])) if text[-1] in "KMGT" else int(text)


def forget(path):
    """The file's pages out of the cache, so that runs begin alike."""
    f = os.open(path, os.O_RDONLY)
    os.fsync(f)
    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(f)


def warm(path):
    with open(path, "rb", buffering=0) as f:
        while f.read(8 << 20):
            pass


class Bench:
    def __init__(self, args):
        self.args = args
        self.rates = []

    def storage(self):
        """Bytes a second, now."""
        forget(self.args.model)
        rate = common.run_json([self.args.llada, "devices", "--profile", "-m", self.args.model, "--json"])[0]["read_rate"]
        self.rates.append(rate)
        return rate

    def ours(self, rows, limit, flags, passes):
        """One run: its line of JSON and its peak."""
        tokens = min(rows, 8)
        command = [self.args.llada, "bench", "generate", "-m", self.args.model, "-q", "--json", "--recipe", "vanilla",
                   "--prompt", rows - tokens, "-n", tokens, "-c", rows, "--per-pass", 1, "--passes", passes] + flags
        if self.args.threads:
            command += ["-t", self.args.threads]
        code, text, peak = Group(limit).run(command)
        if code != 0:
            return {"failed": text.strip()[-200:] or "killed by the limit" if code else "nothing in %d s" % PATIENCE}, peak
        return json.loads(text), peak

    def within(self, rows, budget, flags):
        """Medians over rounds of a run within a budget."""
        runs = []
        for _ in range(self.args.rounds):
            rate = self.storage()
            line, peak = self.ours(rows, 0, ["--mem-budget", budget] + flags, self.args.passes)
            if "failed" in line:
                return line
            m = line["memory"]
            n = line["passes"]
            transfer = m["streamed"] * m["transfer_seconds"] / max(m["bytes_read"], 1)
            runs.append({"rate": rate, "peak": peak, "streamed": m["streamed"], "pass": line["pass_seconds"],
                         "transfer": transfer, "stall": m["stall_seconds"] / n, "overlap": m["overlap"],
                         "hash": line["tokens_hash"]})
        out = {k: common.median([r[k] for r in runs]) for k in runs[0] if k != "hash"}
        out["hash"] = runs[0]["hash"] if len({r["hash"] for r in runs}) == 1 else "they differ"
        return out

    def peer(self, rows, limit, flags):
        """Seconds a pass under a limit, or what became of it; and the peak."""
        forget(self.args.model)
        command = [self.args.peer] + (["-B", self.args.peer_backend] if self.args.peer_backend else []) + flags + \
            ["-t", self.args.threads or os.cpu_count(), "bench", self.args.model, rows, 1]
        code, text, peak = Group(limit).run(command)
        found = re.search(r"^n\s+%d\s+median\s+([\d.]+) ms" % rows, text, re.M)
        if found:
            return "%.2f s" % (float(found.group(1)) / 1e3), peak
        return "nothing in %d s" % PATIENCE if code is None else "killed by the limit" if code == -9 else \
            "failed: " + text.strip()[-100:], peak


HEAD = ["run", "peak", "of the budget", "streamed a pass", "transfers", "a pass", "limit", "share", "waiting", "overlap",
        "hidden", "tokens"]


def say(row):
    print("| " + " | ".join(row) + " |", flush=True)


def budget_row(name, r, compute, budget):
    if "failed" in r:
        return [name, r["failed"]] + ["-"] * (len(HEAD) - 2)
    limit = max(r["streamed"] / r["rate"], compute)
    less = min(r["transfer"], compute)
    hidden = min(1, max(0, r["transfer"] + compute - r["pass"]) / less) if less else 1
    return [name, "%.0f MiB" % (r["peak"] / 2**20), "%.1f %%" % (100 * r["peak"] / budget),
            "%.2f GB" % (r["streamed"] / 1e9), "%.2f s" % r["transfer"], "%.2f s" % r["pass"], "%.2f s" % limit,
            "%.0f %%" % (100 * limit / r["pass"]), "%.2f s" % r["stall"], "%.0f %%" % (100 * r["overlap"]),
            "%.0f %%" % (100 * hidden), r["hash"][:8]]


def plain_row(name, peak, limit, each, tokens="-"):
    return [name, "%.0f MiB" % (peak / 2**20), "%.1f %%" % (100 * peak / limit) if limit else "-", "-", "-", each] + \
        ["-"] * 5 + [tokens]


def mapped_row(bench, name, rows, limit, passes):
    forget(bench.args.model)
    line, peak = bench.ours(rows, limit, [], passes)
    if "failed" in line:
        return plain_row(name, peak, limit, line["failed"])
    return plain_row(name, peak, limit, "%.2f s" % line["pass_seconds"], line["tokens_hash"][:8])


def compute_seconds(bench, rows):
    """Without a budget, the file in the page cache: median over rounds, and the tokens."""
    warm(bench.args.model)
    lines = [bench.ours(rows, 0, [], bench.args.passes)[0] for _ in range(bench.args.rounds)]
    return common.median([x["pass_seconds"] for x in lines]), lines[0]["tokens_hash"]


def budgets_table(bench, rows):
    args = bench.args
    compute, tokens = compute_seconds(bench, rows)
    print("\nPasses of %d rows:\n" % rows)
    common.table(HEAD, [["no budget, warm cache", "-", "-", "-", "-", "%.2f s" % compute] + ["-"] * 5 + [tokens[:8]]])
    for b in args.budgets.split(","):
        n = size(b)
        say(budget_row("--mem-budget " + b, bench.within(rows, b, []), compute, n))
        say(mapped_row(bench, "mapped, limit " + b, rows, n, args.passes))
        if args.peer:
            for name, flags in (("llama.cpp", []), ("llama.cpp, not repacked", ["-nr"])):
                each, peak = bench.peer(rows, n, flags)
                say(plain_row("%s, limit %s" % (name, b), peak, n, each))
    return compute


def ablation_table(bench, rows, compute):
    b = bench.args.ablate
    print("\nThe runtime part by part, %s, passes of %d rows:\n" % (b, rows))
    common.table(HEAD, [])
    for name, left_out in (("naive: each operator's weights are read when it runs", "residency,layout,pipeline"),
                           ("+ residency plan", "layout,pipeline"), ("+ compact layout", "pipeline"),
                           ("+ pipeline", "")):
        r = bench.within(rows, b, ["--without", left_out] if left_out else [])
        say(budget_row(name, r, compute, size(b)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--budgets", default="2G,3G")
    p.add_argument("--rows", default="8,64")
    p.add_argument("--passes", type=int, default=6)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--ablate", default="", help="a budget: also the runtime part by part")
    p.add_argument("--ablate-only", action="store_true", help="only that")
    p.add_argument("--peer")
    p.add_argument("--peer-backend")
    p.add_argument("-t", "--threads", type=int)
    p.add_argument("--llada", default="build/llada")
    args = p.parse_args()
    bench = Bench(args)
    print("Machine: " + common.machine() + ".")
    for rows in [int(r) for r in args.rows.split(",")]:
        compute = compute_seconds(bench, rows)[0] if args.ablate_only else budgets_table(bench, rows)
        if args.ablate:
            ablation_table(bench, rows, compute)
    print("\nStorage, measured before each run: median %.0f MB/s, %.0f to %.0f.  Limit: the larger of streamed bytes at the\n"
          "rate measured before and the seconds without a budget.  Hidden: of transfers and computation, so much of the\n"
          "shorter ran beside the longer." % tuple(x / 1e6 for x in (common.median(bench.rates), min(bench.rates),
                                                                     max(bench.rates))))


main()
