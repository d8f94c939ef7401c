#!/usr/bin/env python3
"""endtoend.py - seconds for an answer of so many tokens behind a prompt of 64, on files with random weights of the true
shape: random weights have no confidence, so a schedule says how many tokens each pass writes.

  bench/endtoend.py -m LLADA.gguf [--packed FILE] --peer PEER [--peer-backend DIR] [--ar LLAMA.gguf] [--trace FILE.jsonl]
                    [--tokens 128,256,512] [--passes 6] [--llada build/llada]

Sides: the recipe `llada` (drafts ahead, revision, refreshes included) at 3 and 6 tokens a pass and, with --trace, at the
pace of a recorded run; the recipe `prefix`, one token a pass, with the vector kernels only, as a plain baseline;
llama.cpp's diffusion loop (all positions anew in each step); an autoregressive model of the same size in llama.cpp.
A side whose passes exceed --passes runs that many and is extrapolated by passes, and marked so (*)."""
import argparse
import re

import common


def ours(args, model, tokens, recipe, pace, most=None, mask=None):
    """Seconds, passes, rows, revision rows of a run; cut off at `most` passes."""
    command = [args.llada, "bench", "generate", "-m", model, "--prompt", args.prompt, "-n", tokens, "--recipe", recipe,
               "--json", "-q", "--reps", 1, "-c", args.prompt + tokens] + pace
    if most:
        command += ["--passes", most]
    if mask:
        command += ["--cpu-mask", mask]
    return common.run_json(command)[0]


def whole(args, model, tokens, recipe, pace, passes, mask=None):
    """(seconds, passes, line, extrapolated) for the whole answer."""
    line = ours(args, model, tokens, recipe, pace, args.passes if passes > args.passes else None, mask)
    if not line["stopped_early"]:
        return line["seconds"], line["passes"], line, False
    return line["seconds"] / line["passes"] * passes, passes, line, True


def peer_command(args, model, mode, *rest):
    backend = ["-B", args.peer_backend] if args.peer_backend else []
    return [args.peer] + backend + [mode, model] + list(rest)


def peer_diffusion(args, tokens):
    out = common.run(peer_command(args, args.model, "diffuse", args.prompt, tokens, tokens, 3))
    n, seconds = re.search(r"(\d+) forwards of \d+ tokens, ([\d.]+) s", out).groups()
    return float(seconds) / int(n) * tokens


def peer_ar(args, tokens):
    out = common.run(peer_command(args, args.ar, "ar", args.prompt, min(tokens, 32)))
    prompt, each = re.search(r"ar prompt \d+: ([\d.]+) ms.*?decode \d+: median ([\d.]+) ms", out).groups()
    return (float(prompt) + float(each) * tokens) / 1e3


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--packed")
    p.add_argument("--peer")
    p.add_argument("--peer-backend")
    p.add_argument("--ar")
    p.add_argument("--trace")
    p.add_argument("--prompt", type=int, default=64)
    p.add_argument("--tokens", default="128,256,512")
    p.add_argument("--passes", type=int, default=6)
    p.add_argument("--vector-mask", help="features of the plain baseline: all but AMX; default: all")
    p.add_argument("--llada", default="build/llada")
    args = p.parse_args()
    print("Machine: " + common.machine() + ".\n")
    body = []
    for tokens in (int(t) for t in args.tokens.split(",")):
        base, _, line, _ = whole(args, args.packed or args.model, tokens, "prefix", ["--per-pass", 1], tokens,
                                 args.vector_mask)
        sides = [("llada, prefix cache, one token a pass *", base, tokens, "")]
        paces = [("3 a pass", ["--per-pass", 3], -(-tokens // 3)), ("6 a pass", ["--per-pass", 6], -(-tokens // 6))]
        if args.trace:
            paces.append(("recorded pace", ["--trace", args.trace], 0))  # never cut off
        for name, pace, passes in paces:
            s, n, line, cut = whole(args, args.packed or args.model, tokens, "llada", pace, passes)
            rows = "%.0f dense rows a pass, %.0f revision rows, %d refreshes" % (
                line["rows"] / line["passes"], line["rev_rows"] / line["passes"], line["full"])
            sides.append(("llada, recipe llada, %s%s" % (name, " *" if cut else ""), s, n, rows))
        if args.peer:
            sides.append(("llama.cpp, diffusion *", peer_diffusion(args, tokens), tokens, "%d rows" % (args.prompt + tokens)))
        if args.ar:
            sides.append(("llama.cpp, autoregressive *", peer_ar(args, tokens), tokens, ""))
        against = [s for s in sides if s[0].startswith("llama.cpp") or "prefix" in s[0]]
        for name, s, n, rows in sides:
            ratios = ["%.1fx" % (other[1] / s) if "recipe llada" in name else "" for other in against]
            body.append([tokens, name, "%.1f" % s, n, rows] + ratios)
    names = ["against prefix cache"] + (["against llama.cpp diffusion"] if args.peer else []) + \
        (["against autoregressive"] if args.ar else [])
    common.table(["tokens", "side", "seconds", "passes", "of a pass"] + names, body)


main()
