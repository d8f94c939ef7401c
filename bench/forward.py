#!/usr/bin/env python3
"""forward.py - passes of so many rows, ours and llama.cpp's in turn, as a Markdown table with ratios and, if asked, a plot.

  bench/forward.py -m MODEL.gguf [--packed MODEL.t32.gguf] [--peer PEER --peer-backend DIR] [--rows 1,8,32,64,128]
                   [--rounds 3] [--svg FILE] [--llada build/llada] [-t N]

PEER is a program that answers `PEER -B DIR bench MODEL ROWS REPS` with lines `n ROWS median MS ms ...` (a harness on
libllama's C API).  A round runs each side once; what is printed are medians over rounds, so that what else the machine
does meets both sides.  The limit of a pass: see `llada bench forward --limits`."""
import argparse
import re

import common


def ours(args, model, rows):
    command = [args.llada, "bench", "forward", "-m", model, "--rows", ",".join(map(str, rows)), "--reps", args.reps,
               "--limits", "--json", "-q", "-c", max(512, max(rows))]
    if args.threads:
        command += ["-t", args.threads]
    if args.cpu_mask:
        command += ["--cpu-mask", args.cpu_mask]
    lines = common.run_json(command)
    return lines[0], {line["rows"]: line for line in lines[1:]}


def peers(args, rows):
    command = [args.peer] + (["-B", args.peer_backend] if args.peer_backend else []) + \
        ["-t", args.threads or 2, "bench", args.model, ",".join(map(str, rows)), args.reps]
    found = re.findall(r"^n\s+(\d+)\s+median\s+([\d.]+) ms", common.run(command), re.M)
    return {int(n): float(ms) for n, ms in found}


def svg(path, rows, series):
    """Milliseconds against rows, both on logarithmic axes."""
    import math
    width, height, left, top = 640, 400, 70, 20
    values = [v for _, points in series for v in points.values()]
    low, high = math.log(min(values)) - 0.1, math.log(max(values)) + 0.1
    first, last = math.log(min(rows)), math.log(max(max(rows), min(rows) + 1))

    def at(r, v):
        return (left + (math.log(r) - first) / (last - first) * (width - left - 150),
                top + (high - math.log(v)) / (high - low) * (height - top - 40))
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" role="img"'
           ' aria-label="milliseconds a pass against rows">' % (width, height),
           "<style>svg{background:#fff;color:#222}text{fill:currentColor}path{fill:none;stroke-width:2}"
           "@media(prefers-color-scheme:dark){svg{background:#161616;color:#ddd}}</style>"]
    for r in rows:
        out.append('<text x="%.0f" y="%d" text-anchor="middle">%d</text>' % (at(r, min(values))[0], height - 12, r))
    for e in range(math.ceil(low / math.log(10) * 2), math.floor(high / math.log(10) * 2) + 1):
        v = 10 ** (e / 2)
        name = "%.2g s" % (v / 1000) if v >= 1000 else "%.2g ms" % v
        out.append('<text x="%d" y="%.0f" text-anchor="end">%s</text>' % (left - 8, at(rows[0], v)[1] + 4, name))
    out.append('<text x="%d" y="%d">rows</text>' % (width - 112, height - 12))
    taken = []  # heights of names, which stand under each other where their lines end together
    for (name, points), colour in zip(series, ("#1769aa", "#2a9d5c", "#c2571a", "#888")):
        line = " ".join("%s%.1f,%.1f" % ("L" if i else "M", *at(r, points[r])) for i, r in enumerate(rows))
        x, y = at(rows[-1], points[rows[-1]])
        while any(abs(y - other) < 16 for other in taken):
            y += 16
        taken.append(y)
        out.append('<path d="%s" stroke="%s"/><text x="%.0f" y="%.0f">%s</text>' % (line, colour, x + 8, y + 4, name))
    open(path, "w").write("\n".join(out) + "\n</svg>\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--packed", help="the same model in T32 layout (llada pack)")
    p.add_argument("--peer")
    p.add_argument("--peer-backend")
    p.add_argument("--rows", default="1,8,32,64,128")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("-t", "--threads", type=int)
    p.add_argument("--cpu-mask")
    p.add_argument("--svg")
    p.add_argument("--llada", default="build/llada")
    args = p.parse_args()
    rows = [int(r) for r in args.rows.split(",")]
    print("Machine: " + common.machine() + ".\n")

    sides = [("llada", lambda: ours(args, args.model, rows))]
    if args.packed:
        sides.append(("llada, packed", lambda: ours(args, args.packed, rows)))
    if args.peer:
        sides.append(("llama.cpp", lambda: (None, peers(args, rows))))
    times = {name: {r: [] for r in rows} for name, _ in sides}
    shares = {name: {r: [] for r in rows} for name, _ in sides}
    limits = []
    for _ in range(args.rounds):
        for name, side in sides:
            limit, lines = side()
            if limit:
                limits.append(limit)
            for r in rows:
                line = lines[r]
                times[name][r].append(line["ms"] if limit else line)
                if limit:
                    shares[name][r].append(line["share"])
    mid = {name: {r: common.median(v) for r, v in t.items()} for name, t in times.items()}
    print("Measured in the same run: memory %.1f GB/s; %s %.0f GFLOP/s, %s %.0f GOP/s in the first cache.\n" % (
        common.median([x["read_gbs"] for x in limits]), limits[0]["float_kernel"],
        common.median([x["float_gflops"] for x in limits]), limits[0]["integer_kernel"],
        common.median([x["integer_gops"] for x in limits])))
    best = "llada, packed" if args.packed else "llada"
    head = ["rows"] + [n + ", ms" for n, _ in sides] + (["ratio to llama.cpp"] if args.peer else []) + ["share of the limit"]
    body = []
    for r in rows:
        line = [r] + ["%.0f" % mid[n][r] if mid[n][r] >= 100 else "%.3g" % mid[n][r] for n, _ in sides]
        if args.peer:
            line.append("%.2fx" % (mid["llama.cpp"][r] / mid[best][r]))
        body.append(line + ["%.0f %%" % (100 * common.median(shares[best][r]))])
    common.table(head, body)
    if args.svg:
        svg(args.svg, rows, [(n, mid[n]) for n, _ in sides])


main()
