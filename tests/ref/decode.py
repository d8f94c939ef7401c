#!/usr/bin/python3
"""decode.py OUT_DIR - runs of decoding on the networks of tests/fixtures, as tests/golden compares them:

  networks.json    rows of scores of full passes          (network.py)
  dream.json       Dream's sampler, all four algorithms   (the generation code published with Dream-v0-Instruct-7B)
  shifted.json     block decoding where row i-1 scores position i: quota and threshold, no, prefix and dual cache
  ar.json          autoregression: greedy and sampled

Written from the published algorithms and docs/decoding.md in float64, apart from the C code.  A run in which a decision
hangs on less than EDGE is thrown away and tried with another prompt: rounding of the network could turn it."""
import json
import math
import os
import sys

import numpy as np

import network

EDGE = 3e-4
FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")


class Close(Exception):
    """A decision that rounding could turn."""


def apart(gap):
    if gap < EDGE:
        raise Close


# ---------------------------------------------------------------- random numbers: xoshiro256++ seeded by splitmix64

FULL = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & FULL
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & FULL
    x = (x ^ x >> 27) * 0x94D049BB133111EB & FULL
    return x ^ x >> 31


class Random:
    def __init__(self, seed):
        self.s = [mix((seed + i * 0x9E3779B97F4A7C15) & FULL) for i in range(4)]

    def next(self):
        s, turn = self.s, lambda x, k: (x << k | x >> 64 - k) & FULL
        out = (turn((s[0] + s[3]) & FULL, 23) + s[0]) & FULL
        t = s[1] << 17 & FULL
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = turn(s[3], 45)
        return out

    def unit(self):
        return (self.next() >> 11) * 2.0 ** -53


# ---------------------------------------------------------------- one row of scores


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def kept(x, top_p, top_k):
    """Which ids survive top-p, then top-k, of scores that are tempered already."""
    order = np.argsort(-x, kind="stable")
    mass = np.cumsum(softmax(x)[order])
    n = len(x)
    if top_p < 1:
        n = int(np.searchsorted(mass, top_p) + 1)
        apart(np.abs(mass - top_p).min())
    if top_k:
        n = min(n, top_k)
    if n < len(x):
        apart(x[order[n - 1]] - x[order[n]])
    keep = np.zeros(len(x), bool)
    keep[order[:n]] = True
    return keep


def best_of(x):
    two = np.sort(x)[-2:]
    apart(two[1] - two[0])
    return int(x.argmax())


def judge(x, banned, temp=0.0, top_p=1.0, top_k=0, seed=0):
    """The choice, its plain probability, and the distribution it was drawn from."""
    x = x.copy()
    if banned >= 0:
        x[banned] = -np.inf
    tempered = (x - x.max()) / (temp if temp > 0 else 1)
    keep = kept(tempered, top_p, top_k)
    cut = softmax(np.where(keep, tempered, -np.inf))
    if temp > 0:
        r = Random(seed)
        u = np.array([r.unit() for _ in x])
        token = best_of(np.where(keep, tempered - np.log(-np.log(u)), -np.inf))
    else:
        token = best_of(x)
    return token, softmax(x)[token], cut


def sureness(alg, token, cut):
    if alg == "maskgit_plus":
        return cut[token]
    if alg == "topk_margin":
        two = np.sort(cut)[-2:]
        return two[1] - two[0]
    return (cut * np.log(cut + 1e-10)).sum()


# ---------------------------------------------------------------- canvases


class Canvas:
    """Prompt and masks; the scores of position i stand in row i-1 when the network shifts them."""

    def __init__(self, net, prompt, gen, seed):
        self.net, self.n_prompt, self.n = net, len(prompt), len(prompt) + gen
        self.tokens = np.array(prompt + [net.mask] * gen)
        self.cache = net.new_cache(self.n)
        self.random = Random(seed)
        self.trace = []
        self.ends = {net.keys["tokenizer.ggml.eos_token_id"], len(net.keys["tokenizer.ggml.tokens"]) - (2 if net.shift else 1)}

    def masks(self, lo=0, hi=None):
        hi = self.n if hi is None else hi
        return [i for i in range(max(lo, self.n_prompt), hi) if self.tokens[i] == self.net.mask]

    def scores(self, lo, hi):
        """Computes rows so that positions lo..hi-1 are scored: a dict by position."""
        first = max(lo - 1, 0) if self.net.shift else lo
        pos = np.arange(first, hi)
        raw = self.net.rows(pos, self.tokens[pos], self.cache, self.n)
        row = (lambda i: max(i - 1, 0)) if self.net.shift else (lambda i: i)
        return {i: raw[row(i) - first] for i in range(lo, hi)}

    def commit(self, picks):
        """(position, token, plain probability) of one pass."""
        for i, token, _ in picks:
            self.tokens[i] = token
        self.trace.append([[i - self.n_prompt, int(t), round(float(p), 6)] for i, t, p in sorted(picks)])

    def ended(self):
        """Everything before an end token is written."""
        for i in range(self.n_prompt, self.n):
            if self.tokens[i] == self.net.mask:
                return False
            if self.tokens[i] in self.ends:
                return True
        return True

    def text(self):
        out = []
        for t in self.tokens[self.n_prompt:]:
            if t == self.net.mask or t in self.ends:
                break
            out.append(int(t))
        return out


def top(items, n):
    """The n of (key, position, ...) with the highest keys."""
    items = sorted(items, key=lambda c: -c[0])
    if n < len(items):
        apart(items[n - 1][0] - items[n][0])
    return items[:n]


def dream(c, alg="entropy", steps=0, temp=0.0, top_p=1.0, top_k=0, alg_temp=0.0, eps=1e-3, early=True):
    steps = steps or len(c.masks())
    f = np.float32
    width = (f(eps) - f(1)) / f(steps)
    time = lambda i: f(1) + width * f(i) if i < (steps + 1) // 2 else f(eps) - width * f(steps - i)
    for step in range(steps):
        masks = c.masks()
        if not masks or (early and c.ended()):
            break
        share = f(1) - time(step + 1) / time(step) if step < steps - 1 else f(1)
        if alg == "origin":
            masks = [i for i in masks if c.random.unit() < share]
            count = len(masks)
        else:
            count = int(f(len(masks)) * share)
        if count == 0:
            continue
        scores = c.scores(0, c.n)
        found = []
        for i in masks:
            seed = c.random.next() if temp > 0 else 0
            found.append((i,) + judge(scores[i], c.net.mask, temp, top_p, top_k, seed))
        ranked = []
        for i, token, p, cut in found:
            key = 0.0 if alg == "origin" else sureness(alg, token, cut)
            if alg_temp > 0 and alg != "origin":
                key = key / alg_temp - math.log(-math.log(c.random.unit()))
            ranked.append((key, i, token, p))
        c.commit([r[1:] for r in (ranked if alg == "origin" else top(ranked, count))])


def blocks(c, block=8, cache="none", rule="quota", tau=0.9, steps=0):
    """LLaDA's sampler, or the threshold rule; greedy; to the end of the canvas."""
    gen = c.n - c.n_prompt
    for b0 in range(c.n_prompt, c.n, block):
        b1 = min(b0 + block, c.n)
        m, first, step = len(c.masks(b0, b1)), True, 0
        per = max(steps // -(-gen // block), 1) if steps else m
        while c.masks(b0, b1):
            whole = first or cache == "none"
            scores = c.scores(0, c.n) if whole else c.scores(b0, c.n if cache == "prefix" else b1)
            found = []
            for i in c.masks(b0, b1):
                token, p, _ = judge(scores[i], c.net.mask)
                found.append((p, i, token, p))
            count = (m // per + (step < m % per)) if rule == "quota" else max(sum(f[0] >= tau for f in found), 1)
            if rule == "threshold":
                apart(min(abs(f[0] - tau) for f in found))
            c.commit([r[1:] for r in top(found, count)])
            first, step = False, step + 1


def ar(c, temp=0.0, top_p=1.0, top_k=0, early=True):
    fresh = 0
    for at in range(c.n_prompt, c.n):
        pos = np.arange(fresh, at)
        raw = c.net.rows(pos, c.tokens[pos], c.cache, at)
        fresh = at
        seed = c.random.next() if temp > 0 else 0
        token, p, _ = judge(raw[-1], -1, temp, top_p, top_k, seed)
        c.commit([(at, token, p)])
        if early and token in c.ends:
            break


# ---------------------------------------------------------------- files


def run(net, how, settings, n_prompt, gen, seed, end=False):
    """end: the text must end before the canvas does."""
    for attempt in range(1000):
        g = np.random.Generator(np.random.PCG64([seed, attempt]))
        prompt = [int(t) for t in g.integers(0, net.vocab - 6, n_prompt)]
        c = Canvas(net, prompt, gen, seed)
        try:
            how(c, **settings)
        except Close:
            continue
        if end and len(c.text()) > gen - 3:
            continue
        return {"settings": settings, "prompt": prompt, "gen": gen, "seed": seed, "passes": c.trace, "text": c.text()}
    raise SystemExit("no run without a close decision")


def save(name, arch, runs):
    with open(os.path.join(sys.argv[1], name), "w") as f:
        f.write('{"model": "net-%s.gguf", "runs": [\n' % arch)
        f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in runs) + "\n]}\n")
    print(name, len(runs), "runs,", sum(len(r["passes"]) for r in runs), "passes")


def main():
    open_net = lambda arch: network.Network(os.path.join(FIXTURES, "net-%s.gguf" % arch))
    rows = []
    for arch in ("llada", "dream", "llada-moe", "llama"):
        net = open_net(arch)
        g = np.random.Generator(np.random.PCG64(len(arch)))
        ids = [int(t) for t in g.integers(0, net.vocab, 21)]
        out = net.forward(ids)
        some = {str(i): [round(float(v), 5) for v in out[i]] for i in (0, 1, 9, 20)}
        rows.append({"model": "net-%s.gguf" % arch, "ids": ids, "rows": some})
    with open(os.path.join(sys.argv[1], "networks.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")

    # (without a prompt all rows of masks are alike, and every choice of one of them would be close)
    net, runs = open_net("dream"), []
    hot = {"temp": 0.8}
    for alg in ("origin", "maskgit_plus", "topk_margin", "entropy"):
        for more, n_prompt, gen in (({}, 5, 12), ({"steps": 5}, 3, 17), (dict(hot, steps=9), 4, 12),
                                    (dict(hot, top_p=0.7), 6, 8), (dict(hot, top_k=5, steps=6), 1, 13),
                                    ({"alg_temp": 0.3, "steps": 6}, 5, 13), ({"top_p": 0.5, "steps": 40}, 5, 9),
                                    (dict(hot, alg_temp=0.6, top_p=0.9, top_k=20, eps=0.05, steps=7), 5, 12),
                                    ({"steps": 4, "early": False}, 0 if alg == "origin" else 1, 10)):
            runs.append(run(net, dream, dict(more, alg=alg), n_prompt, gen, 100 + len(runs)))
    for alg in ("origin", "entropy"):
        runs.append(run(net, dream, dict(hot, alg=alg, temp=1.5), 4, 14, 200 + len(runs), True))
    save("dream.json", "dream", runs)

    runs = []
    for cache in ("none", "prefix", "dual"):
        for more, n_prompt, gen in (({}, 6, 16), ({"steps": 8}, 5, 19), ({"rule": "threshold", "tau": 0.2}, 7, 21),
                                    ({"rule": "threshold", "tau": 0.1, "block": 5}, 1, 12)):
            runs.append(run(net, blocks, dict({"block": 8, "rule": "quota"}, cache=cache, **more), n_prompt, gen, 300 + len(runs)))
    save("shifted.json", "dream", runs)

    net, runs = open_net("llama"), []
    for more, n_prompt, gen in (({}, 5, 20), ({}, 1, 9), ({"temp": 0.7}, 6, 16), ({"temp": 1.0, "top_k": 10}, 4, 14),
                                ({"temp": 1.3, "top_p": 0.8}, 4, 14), ({"temp": 0.9, "top_p": 0.95, "top_k": 40}, 8, 20),
                                ({"temp": 5.0, "early": False}, 3, 60)):
        runs.append(run(net, ar, more, n_prompt, gen, 500 + len(runs)))
    runs.append(run(net, ar, {"temp": 2.0}, 4, 30, 600, True))
    runs.append(run(net, ar, {"temp": 2.0, "early": False}, 4, 30, 601, True))
    save("ar.json", "llama", runs)


main()
