#!/usr/bin/python3
"""more.py OUT_DIR [NAME...] - runs of what docs/decoding.md describes beyond the published samplers, for tests/golden
(test_more.c): commit rules margin, klass, hierarchical, credit; temperature and random remasking; guidance; the bans
of end tokens; refreshing; vicinity; templates; hold mode; and revision with its options.

Written from the document and the papers in float64, apart from the C code.  A run in which a decision hangs on less
than the network's rounding is thrown away and the next prompt is tried."""
import json
import math
import os
import sys

import numpy as np

import network

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "golden", "data")
MODEL = os.path.join(HERE, "..", "fixtures", "tiny-llada-f32.gguf")
SCORE = 2e-5  # how far float32 arithmetic may shift a score, with room to spare


class Close(Exception):
    """A decision that rounding could turn."""


def shift_of(p):
    """How far such a shift moves a probability."""
    return SCORE * p * (1 - p) + 1e-12


def apart(a, b, p=None):
    """Two probabilities (or values that move as far as probability p does) that must not change places."""
    if abs(a - b) < (shift_of(a) + shift_of(b) if p is None else 4 * shift_of(p)):
        raise Close


# ---------------------------------------------------------------- random numbers (section 8)

FULL = (1 << 64) - 1


def turn(x, k):
    return (x << k | x >> (64 - k)) & FULL


class Stream:
    """xoshiro256++, its state four outputs of splitmix64."""

    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & FULL
            z = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & FULL
            z = ((z ^ z >> 27) * 0x94D049BB133111EB) & FULL
            self.s.append(z ^ z >> 31)

    def draw(self):
        a, b, c, d = self.s
        out = (turn((a + d) & FULL, 23) + a) & FULL
        c ^= a
        d ^= b
        self.s = [a ^ d, b ^ c, c ^ (b << 17 & FULL), turn(d, 45)]
        return out

    def unit(self):
        """In (0, 1), 53 bits."""
        while True:
            x = self.draw() >> 11
            if x:
                return x * 2.0 ** -53


# ---------------------------------------------------------------- the network (section 1)


class Net(network.Network):
    def look(self, kv, pos, tok, shadow):
        """Scores of the rows and their fresh K,V.  Rows see all positions of kv ([layer][2][position]), where ordinary
        rows stand in for their position; a shadow row sees itself in place of its position; nobody else sees it."""
        pos, tok, shadow = np.asarray(pos), np.asarray(tok), np.asarray(shadow, bool)
        x = self.t["token_embd.weight"][tok].astype(np.float64)
        fresh, plain, at = [], pos[~shadow], np.nonzero(shadow)[0]
        for l in range(self.layers):
            b = "blk.%d." % l
            h = self.norm(x, b + "attn_norm.weight")
            q, k, v = (self.linear(h, b + "attn_" + w).reshape(len(pos), -1, self.hd) for w in "qkv")
            q, k = self.rotate(q, pos), self.rotate(k, pos)
            fresh.append((k, v))
            ks, vs = kv[l, 0].copy(), kv[l, 1].copy()
            ks[plain], vs[plain] = k[~shadow], v[~shadow]
            per = self.heads // self.kv
            ks, vs, k, v = (np.repeat(a, per, 1) for a in (ks, vs, k, v))
            s = np.matmul(q.transpose(1, 0, 2), ks.transpose(1, 2, 0))
            s[:, at, pos[at]] = np.einsum("ihd,ihd->hi", q[at], k[at])
            s = np.exp((s - s.max(-1, keepdims=True)) / math.sqrt(self.hd))
            s /= s.sum(-1, keepdims=True)
            a = np.matmul(s, vs.transpose(1, 0, 2)).transpose(1, 0, 2)
            a[at] += s[:, at, pos[at]].T[:, :, None] * (v[at] - vs[pos[at]])
            x = x + self.linear(a.reshape(len(pos), -1), b + "attn_output")
            x = x + self.feed_forward(self.norm(x, b + "ffn_norm.weight"), b)
        return self.norm(x, "output_norm.weight") @ self.head.T, fresh

    def keep(self, kv, pos, fresh, rows):
        for l, (k, v) in enumerate(fresh):
            kv[l, 0, pos], kv[l, 1, pos] = k[rows], v[rows]


class Row:
    """One row of scores judged: token, its plain probability p, all probabilities."""

    def __init__(self, x, banned, temp=0.0, seed=None):
        x = x.copy()
        x[banned] = -np.inf
        e = np.exp(x - x.max())
        self.all = e / e.sum()
        noisy = x
        if temp > 0:
            s = Stream(seed)
            u = np.array([s.unit() for _ in range(len(x))])
            noisy = (x - x.max()) / temp - np.log(-np.log(u))
        self.token = int(noisy.argmax())
        two = np.sort(noisy)[-2:]
        if two[1] - two[0] < SCORE * 2 / (temp or 1):
            raise Close
        self.p = float(self.all[self.token])
        self.top = [int(i) for i in np.argsort(-self.all, kind="stable")[:8]]
        q = self.all[self.all > 0]
        self.entropy = float(-(q * np.log(q)).sum())


def grid(p):
    """To 1/4096, half to even; the window engine's numbers."""
    f = p * 4096
    if abs(f - math.floor(f) - 0.5) < 4096 * shift_of(p):
        raise Close
    return float(np.round(f)) / 4096


# ---------------------------------------------------------------- commit rules (section 4)


class Candidate:
    def __init__(self, pos, row, key, p, late):
        self.pos, self.row, self.key, self.p, self.late = pos, row, key, p, late


def falling(items, value):
    """By value, ties by position; neighbours in the order must be apart unless they are equal by construction."""
    order = sorted(items, key=lambda c: (-value[c], c.pos))
    for a, b in zip(order, order[1:]):
        if value[a] != value[b]:
            apart(value[a], value[b], max(shift_of(min(1, abs(value[a]))), shift_of(a.p), shift_of(b.p)) / SCORE)
    return order


def over(value, bound, p):
    apart(value, bound, p)
    return value >= bound


def pick(cands, s, threshold, quota, memory, exact):
    """What is written now.  exact: values are multiples of 1/4096, comparisons need no room."""
    global apart
    room = apart
    if exact:
        apart = lambda *a: None
    try:
        return _pick(cands, s, threshold, quota, memory)
    finally:
        apart = room


def _pick(cands, s, threshold, quota, memory):
    rule = s["rule"]
    value = {c: c.key for c in cands}
    if rule == "margin":
        for c in cands:
            a, b = (c.row.all[i] for i in c.row.top[:2])
            value[c] = -math.inf if c.late else float(a - b)
    if rule == "credit":
        for c in cands:
            m = memory.setdefault(c.pos, {})
            past = m.get("credit", 0.0) if m.get("token") == c.row.token else 0.0
            lift = math.exp(past)
            value[c] = c.key * lift / (c.key * lift + 1 - c.key)
            m.update(token=c.row.token, credit=s["credit"] * past + (1 - s["credit"]) * c.key)
    order = falling(cands, value)
    if rule == "quota":
        taken = order[:quota]
    elif rule in ("threshold", "credit") and s["ahead"] > 0:
        chosen, gap = set(), False
        for c in cands:
            if over(value[c], max(threshold, s["ahead"]) if gap else threshold, c.p):
                chosen.add(c)
            else:
                gap = True
        taken = [c for c in order if c in chosen]
    elif rule == "threshold" or rule == "credit":
        taken = [c for c in order if over(value[c], threshold, c.p)]
    elif rule == "margin":
        taken = [c for c in order if not c.late and over(value[c], s["margin"], c.p)]
    elif rule == "klass":
        taken = []
        for c in cands:
            m = memory.setdefault(c.pos, {"near": 0})
            before, now = m.get("before"), c.row.all
            if before is None:
                m["near"] = 0
            else:  # over the eight best of the pass before, and all others as one
                was = [p for _, p in before]
                is_now = [float(now[i]) for i, _ in before]
                was.append(1 - sum(was))
                is_now.append(1 - sum(is_now))
                kl = sum(a * math.log(a / max(b, 1e-12)) for a, b in zip(is_now, was) if a > 1e-12)
                if abs(kl - s["kappa"]) < 1e-4 * s["kappa"]:
                    raise Close
                m["near"] = m["near"] + 1 if kl < s["kappa"] else 0
            m["before"] = [(i, float(now[i])) for i in c.row.top]
        taken = [c for c in order if over(c.key, threshold, c.p) and memory[c.pos]["near"] >= 2]
    elif rule == "hierarchical":
        chosen, i = set(), 0
        while i < len(cands):
            j = i + 1
            while j < len(cands) and cands[j].pos == cands[j - 1].pos + 1:
                j += 1
            run = cands[i:j]
            high = [c for c in run if over(c.key, s["high"], c.p)]
            best = falling(run, value)[0]
            chosen |= set(high) if high else {best} if over(best.key, s["low"], best.p) else set()
            i = j
        taken = [c for c in order if c in chosen]
    else:
        raise ValueError(rule)
    return taken or order[:1]


# ---------------------------------------------------------------- what both decoders share


class Decoder:
    def __init__(self, net, prompt, canvas, s, seed):
        self.net, self.s, self.P, self.T = net, s, len(prompt), len(prompt) + len(canvas)
        self.x = np.array(list(prompt) + [net.mask if c < 0 else c for c in canvas])
        self.mask = np.array([False] * self.P + [c < 0 for c in canvas])  # positions to write
        self.hole = self.mask.copy()
        self.kv = np.zeros((net.layers, 2, self.T, net.kv, net.hd))
        self.un = self.kv.copy()  # guidance: K,V of the pass without the prompt
        self.random = Stream(seed)
        self.ends = [net.keys["tokenizer.ggml.eos_token_id"], net.keys["tokenizer.ggml.eot_token_id"]]
        self.banned = [net.mask] + ([self.ends[0]] if s["ban_eos"] else [])
        self.memory, self.conf, self.trace = {}, np.zeros(self.T), []
        self.stats = dict(passes=0, full=0, rows=0)
        self.since = 0

    def holes(self):
        """(from, to) of each run of positions to write."""
        i = self.P
        while i < self.T:
            j = i
            while j < self.T and self.hole[j]:
                j += 1
            if j > i:
                yield i, j
            i = max(j, i + 1)

    def block_of(self, pos):
        return (pos - self.P) // self.s["block"]

    def bounds(self, block):
        return self.P + block * self.s["block"], min(self.P + (block + 1) * self.s["block"], self.T)

    def scores(self, rows, shadow):
        """Judges nothing: scores of all rows of a dense pass; K,V of ordinary rows are kept."""
        plain = np.nonzero(~shadow)[0]
        tok = np.where(shadow, self.net.mask, self.x[rows])
        x, fresh = self.net.look(self.kv, rows, tok, shadow)
        self.net.keep(self.kv, rows[plain], fresh, plain)
        self.stats["passes"] += 1
        self.stats["rows"] += len(rows)
        if self.s["cfg"] > 0:
            tok = np.where(rows < self.P, self.net.mask, tok)
            u, fresh = self.net.look(self.un, rows, tok, shadow)
            self.net.keep(self.un, rows[plain], fresh, plain)
            self.stats["passes"] += 1
            self.stats["rows"] += len(rows)
            x = u + (self.s["cfg"] + 1) * (x - u)
        return x

    def refresh(self, first, new_block, asked):
        s = self.s
        if first or asked or s["cache"] == "none":
            return True
        if s["refresh"] == "every":
            return self.since >= s["refresh_n"]
        return new_block and s["refresh"] == "block"

    def judge(self, x, pos_of):
        """One Row a wanted mask, in order; each takes a seed from the request's stream when there is noise."""
        t = self.s["temp"]
        return {i: Row(x[r], self.banned, t, self.random.draw() if t > 0 else None) for r, i in pos_of}

    def candidate(self, pos, row, exact):
        late, p, key = False, row.p, row.p
        if self.s["ban_eos_conf"]:
            late = row.token in self.ends
            rest = 1 - sum(float(row.all[e]) for e in self.ends)
            key = 0.0 if late else min(1.0, p / rest) if self.s["rule"] != "klass" else p
        return Candidate(pos, row, grid(key) if exact else key, grid(p) if exact else p, late)

    def quota(self, masks, step):
        steps = masks
        if self.s["steps"] > 0:
            n_blocks = -(-(self.T - self.P) // self.s["block"])
            steps = max(1, self.s["steps"] // n_blocks)
        return masks if step >= steps else masks // steps + (step < masks % steps)

    def result(self):
        """The canvas, end tokens behind each hole's first end."""
        out = self.x.copy()
        for lo, hi in self.holes():
            e = [i for i in range(lo, hi) if out[i] in self.ends and not self.mask[i]]
            if e:
                out[e[0] + 1:hi] = self.ends[0]
        return [int(t) for t in out[self.P:]]


class Blocks(Decoder):
    """Block by block (section 3)."""

    def closed(self):
        """Positions where nothing is to be done: holes without masks, or with an end token in a completed block."""
        out = np.zeros(self.T, bool)
        for lo, hi in self.holes():
            done = not self.mask[lo:hi].any()
            for i in range(lo, hi):
                if self.s["early"] and not self.mask[i] and self.x[i] in self.ends:
                    b0, b1 = self.bounds(self.block_of(i))
                    done |= not self.mask[max(b0, lo):min(b1, hi)].any()
            out[lo:hi] = done
        return out

    def run(self):
        s, block, asked = self.s, -1, False
        while True:
            open_ = self.mask & ~self.closed()
            if not open_.any():
                return
            new = self.block_of(int(open_.argmax())) != block
            block = self.block_of(int(open_.argmax()))
            b0, b1 = self.bounds(block)
            full = self.refresh(not self.trace, new, asked)
            self.since, asked = 1 if full else self.since + 1, False
            if new:
                masks, step = int(open_[b0:b1].sum()), 0
            lo, hi = max(0, b0 - s["vicinity"]), min(self.T, b1 + s["vicinity"])
            rows = np.arange(self.T) if full else np.arange(lo, self.T if s["cache"] == "prefix" else hi)
            self.stats["full"] += full
            x = self.scores(rows, np.zeros(len(rows), bool))
            want = [(r, int(i)) for r, i in enumerate(rows) if b0 <= i < b1 and open_[i]]
            judged = self.judge(x, want)
            cands = [self.candidate(i, row, False) for i, row in judged.items()]
            if s["fresh_eos"] and not full:
                cands = [c for c in cands if c.row.token not in self.ends]
            if s["rule"] == "quota" and s["remasking"] == "random":
                for c in cands:
                    c.key = self.random.unit()
            taken = []
            if cands:
                exact = s["remasking"] == "random"
                taken = pick(cands, s, s["tau"], self.quota(masks, step), self.memory, exact)
            elif judged:
                asked = True
            for c in taken:
                self.x[c.pos], self.mask[c.pos] = c.row.token, False
            self.trace.append([[c.pos - self.P, c.row.token, c.p] for c in taken])
            step += 1


class Window(Decoder):
    """Speculation and revision (sections 5 and 6)."""

    def __init__(self, *a):
        super().__init__(*a)
        z = lambda kind: np.zeros(self.T, kind)
        self.stable, self.draft, self.fresh = z(bool), z(bool), z(bool)
        self.hits, self.looks, self.revs, self.drops = z(int), z(int), z(int), z(int)
        self.held, self.jobs, self.step, self.version = {}, [], 0, 0
        self.stats.update(rev_rows=0, edits=0, remasks=0, drafts=0, draft_ok=0, jobs=0)
        self.on = self.s["dppr"]
        self.bar = self.s["vis"] if self.on else self.s["tau"]

    def tell(self, what, pos, token, conf):
        self.events.append([what, int(pos - self.P), int(token), float(conf)])

    def write(self, pos, token, conf):
        self.x[pos], self.mask[pos], self.conf[pos] = token, False, conf
        self.hits[pos], self.fresh[pos], self.stable[pos] = 0, False, not self.on
        self.held.pop(pos, None)
        self.version += 1

    def unwrite(self, pos):
        self.x[pos], self.mask[pos] = self.net.mask, True
        self.fresh[pos] = self.draft[pos] = self.stable[pos] = False
        self.memory.pop(pos, None)
        self.version += 1

    def drop(self, pos, conf):
        self.unwrite(pos)
        self.drops[pos] += 1
        self.tell("drop", pos, -1, conf)

    def show_draft(self, pos, token, conf):
        self.write(pos, token, conf)
        self.draft[pos] = self.s["verify"]
        self.tell("draft", pos, token, conf)

    def written(self):
        return self.hole & ~self.mask

    def ended_at(self, lo, hi):
        """First end token written in a hole; hi when there is none."""
        e = [i for i in range(lo, hi) if not self.mask[i] and self.x[i] in self.ends]
        return e[0] if e and self.s["early"] else hi

    def closed(self):
        """A hole is done when it has no masks (without revision: nor unconfirmed drafts), or when all before a
        confirmed end token is written and confirmed."""
        out = np.zeros(self.T, bool)
        for lo, hi in self.holes():
            open_ = self.mask[lo:hi] | self.draft[lo:hi]
            done = not self.mask[lo:hi].any() if self.on else not open_.any()
            for i in range(lo, hi):
                if open_[i - lo]:
                    break
                done |= self.s["early"] and self.x[i] in self.ends
            out[lo:hi] = done
        return out

    # --- revision

    def launch(self, text_only):
        ok = self.written() & ~self.stable
        for j in self.jobs:
            ok[j["pos"]] = False
        if text_only:
            for lo, hi in self.holes():
                ok[self.ended_at(lo, hi) + 1:hi] = False
        pos = sorted(np.nonzero(ok)[0], key=lambda i: (self.conf[i], i))[:self.s["rev"]]
        if not pos or (text_only and self.conf[pos[0]] >= self.s["trust"]):
            return False
        pos = np.array(pos)
        n = len(pos)
        rows, shadow = np.concatenate([pos, pos]), np.arange(2 * n) >= n
        x, fresh = self.net.look(self.kv, rows, np.where(shadow, self.net.mask, self.x[rows]), shadow)
        out = []
        for i in range(n):
            row = Row(x[n + i], self.banned)
            out.append((row.token, grid(row.p), grid(float(row.all[self.x[pos[i]]]))))
        self.jobs.append(dict(due=self.step + self.s["lag"] - 1, pos=pos, x=self.x[pos].copy(), out=out,
                              fresh=[(k[:n], v[:n]) for k, v in fresh], version=self.version))
        self.stats["jobs"] += 1
        self.stats["rev_rows"] += 2 * n
        return True

    def settle(self, pos, conf):
        self.stable[pos] = True
        self.tell("stable", pos, self.x[pos], conf)

    def merge_one(self, pos, best, p, own):
        s = self.s
        self.looks[pos] += 1
        if best == self.x[pos]:
            self.conf[pos] = own
            if own >= s["vis"]:
                self.draft[pos] = False
            self.hits[pos] = self.hits[pos] + 1 if own >= s["stable"] else 0
            if (self.hits[pos] >= s["n_stable"] or self.looks[pos] >= s["rmax"] + 2) and not self.draft[pos]:
                self.settle(pos, own)
        else:
            self.hits[pos] = 0
            self.revs[pos] += 1
            may = not (s["fresh_eos"] and best in self.ends)
            if self.revs[pos] > s["rmax"]:
                if not self.draft[pos]:
                    self.settle(pos, own)
            elif may and p >= (s["edit"] if s["edit"] > 0 else s["vis"]):
                self.x[pos], self.conf[pos], self.fresh[pos] = best, p, False
                self.version += 1
                self.stats["edits"] += 1
                self.tell("edit", pos, best, p)
            elif own < s["remask"]:
                self.unwrite(pos)
                self.stats["remasks"] += 1
                self.tell("remask", pos, -1, own)
            else:
                self.conf[pos] = own
        if self.draft[pos] and self.looks[pos] >= s["rmax"] + 2:
            self.drop(pos, own)

    def merge(self):
        while self.jobs and self.jobs[0]["due"] <= self.step:
            j = self.jobs.pop(0)
            self.events = []
            self.trace.append(dict(step=self.step, merge=self.events))
            for i, pos in enumerate(j["pos"]):
                if self.mask[pos] or self.stable[pos] or self.x[pos] != j["x"][i]:
                    continue
                for l, (k, v) in enumerate(j["fresh"]):
                    self.kv[l, 0, pos], self.kv[l, 1, pos] = k[i], v[i]
                self.fresh[pos] = True
                self.merge_one(pos, *j["out"][i])
            if self.s["calm"] and j["version"] == self.version:
                for pos in j["pos"]:
                    if not self.mask[pos] and not self.stable[pos] and not self.draft[pos]:
                        self.settle(pos, self.conf[pos])

    # --- a dense pass

    def ahead(self, n, b1, slide, open_):
        """Adaptive lookahead: masks beyond the window while rows are (nearly) free."""
        bucket = self.s["bucket"] or 32
        room = min(self.s["look"], (-n) % bucket if n else bucket)
        return [i for i in range(max(b1, slide), self.T) if open_[i]][:room]

    def dense(self, closed):
        s, open_ = self.s, self.mask & ~closed
        todo = (self.mask | self.draft) & ~closed
        block = self.block_of(int(todo.argmax()))
        new, self.block = block != getattr(self, "block", None), block
        b0, b1 = self.bounds(block)
        if s["mbsd"] == "hold":
            for i in sorted(self.held):
                if b0 <= i < b1 and self.mask[i]:
                    self.show_draft(i, *self.held[i])
            open_ = self.mask & ~closed
        full = self.refresh(self.stats["passes"] == 0, new, getattr(self, "asked", False))
        self.since, self.asked = 1 if full else self.since + 1, False
        if new:
            self.masks, self.block_step = int(open_[b0:b1].sum()), 0
        inside = [i for i in range(b0, b1) if open_[i]]
        check = np.array([i for i in range(self.P, b1) if self.draft[i] and not closed[i]], int)
        left = inside[0] if inside else b0
        if full:
            rows, reach = np.arange(self.T), b1
            if s["mbsd"] != "off" and inside:
                reach = max(b1, left + s["block"])
        else:
            some, reach = set(inside), b1
            stale = {int(i) for i in np.nonzero(self.written() & ~self.fresh)[0]}
            if s["mbsd"] != "off":
                reach = self.T
                some |= {i for i in range(b1, min(self.T, left + s["block"])) if open_[i]}
                if len(inside) < s["trigger"]:
                    some |= set(self.ahead(len(some) + len(stale) + len(check), b1, left + s["block"], open_))
            some |= stale
            if s["vicinity"]:
                some |= set(range(max(0, b0 - s["vicinity"]), min(self.T, b1 + s["vicinity"])))
            rows = np.array(sorted(some), int)
        both = np.concatenate([rows, check])
        shadow = np.arange(len(both)) >= len(rows)
        self.stats["full"] += full
        x = self.scores(both, shadow)
        self.fresh[rows] = ~self.mask[rows]
        judged = self.judge(x, [(r, int(i)) for r, i in enumerate(rows) if open_[i] and i < reach])
        self.step += 1
        self.events = []
        self.trace.append(dict(step=self.step, rows="all" if full else [int(i - self.P) for i in rows],
                               shadow=[int(i - self.P) for i in check], events=self.events))
        for k, i in enumerate(check):
            row = Row(x[len(rows) + k], self.banned)
            p = grid(row.p)
            if row.token == self.x[i] and p >= self.bar:
                self.draft[i], self.conf[i] = False, p
                self.stats["draft_ok"] += 1
                self.tell("ok", i, row.token, p)
            else:
                self.drop(i, p)
        may_end = full or not s["fresh_eos"]
        cands = [self.candidate(i, row, True) for i, row in judged.items()]
        mine = [c for c in cands if c.pos < b1]
        now = [c for c in mine if may_end or c.row.token not in self.ends]
        self.asked = not now and len(mine) > 0
        if now:
            taken = pick(now, s, self.bar, self.quota(self.masks, self.block_step), self.memory, True)
            for c in sorted(taken, key=lambda c: c.pos):
                self.write(c.pos, c.row.token, c.p)
                self.tell("commit", c.pos, c.row.token, c.p)
        if s["mbsd"] != "off":
            for c in cands:
                if c.pos >= b1 and (may_end or c.row.token not in self.ends):
                    self.maybe_draft(c)
        self.block_step += 1

    def maybe_draft(self, c):
        good = c.key >= self.s["tau_draft"] and not c.late and self.drops[c.pos] < max(1, self.s["rmax"])
        if self.s["mbsd"] == "show":
            self.stats["drafts"] += good
            if good:
                self.show_draft(c.pos, c.row.token, c.p)
            return
        self.stats["drafts"] += good and c.pos not in self.held
        self.held.pop(c.pos, None)
        if good:
            self.held[c.pos] = (c.row.token, c.p)

    def run(self):
        boundary = self.s["launch"] == "boundary"
        self.events = []
        while True:
            self.merge()
            closed = self.closed()
            if not (self.hole & ~closed).any():
                if self.on and (self.jobs or self.launch(True)):
                    self.step += 1
                    continue
                break
            if self.on and boundary:
                self.launch(False)
            self.dense(closed)
            if self.on and not boundary:
                self.launch(False)
        self.trace = [t for t in self.trace if t.get("merge") != []]


# ---------------------------------------------------------------- the runs

BASE = dict(gen=32, block=16, steps=0, cache="dual", rule="threshold", tau=0.9, factor=1.0, gamma=0.1, margin=0.8,
            kappa=0.01, low=0.6, high=0.9, credit=0.7, remasking="low_confidence", temp=0.0, cfg=0.0, ban_eos=False,
            ban_eos_conf=False, fresh_eos=False, early=True, mbsd="off", trigger=8, look=32, bucket=32, tau_draft=0.99,
            verify=True, dppr=False, vis=0.9, stable=0.999, remask=0.9, n_stable=2, rev=16, rmax=3, lag=1,
            refresh="block", refresh_n=16, vicinity=0, launch="pass", calm=False, edit=0.0, trust=2.0,
            ahead=0.0)
REV = dict(mbsd="show", dppr=True)
RECIPES = {
    "margin": dict(rule="margin"),
    "klass": dict(rule="klass", tau=0.6, kappa=0.05),
    "hierarchical": dict(rule="hierarchical", low=0.5),
    "hierarchical-none": dict(rule="hierarchical", low=0.7, high=0.95, cache="none", block=20),
    "ahead": dict(tau=0.7, ahead=0.99),
    "ahead-window": dict(REV, lag=2, launch="boundary", calm=True, vis=0.8, ahead=0.99, edit=0.4, trust=0.98, block=8),
    "credit": dict(rule="credit", credit=0.6, tau=0.95),
    "temp": dict(rule="quota", steps=16, temp=0.7),
    "temp-window": dict(REV, temp=1.0),
    "random": dict(rule="quota", steps=8, remasking="random", cache="prefix"),
    "cfg": dict(cfg=0.5, rule="quota", steps=8),
    "cfg-dual": dict(cfg=1.0, tau=0.8, cache="none"),
    "ban-eos": dict(rule="quota", steps=8, ban_eos=True),
    "ban-eos-conf": dict(rule="quota", steps=8, ban_eos_conf=True, early=False),
    "ban-eos-conf-entropy": dict(rule="margin", ban_eos_conf=True, early=False),
    "fresh-eos": dict(fresh_eos=True, tau=0.99, early=False),
    "every": dict(refresh="every", refresh_n=3, tau=0.999),
    "vicinity": dict(vicinity=4, tau=0.99),
    "vicinity-prefix": dict(vicinity=3, cache="prefix", tau=0.99),
    "hold": dict(mbsd="hold", tau=0.95, tau_draft=0.7, block=8, refresh="never"),
    "hold-revise": dict(REV, mbsd="hold", block=8, tau_draft=0.5),
    "hold-unverified": dict(mbsd="hold", verify=False, block=8, tau=0.95),
    "window-margin": dict(mbsd="show", rule="margin", block=8, tau_draft=0.6),
    "window-klass": dict(REV, rule="klass", kappa=0.05, block=8),
    "window-every": dict(REV, refresh="every", refresh_n=3, vicinity=2, block=8),
    "lag3": dict(REV, lag=3, block=8),
    "boundary": dict(REV, lag=2, launch="boundary", block=8),
    "calm": dict(REV, lag=2, calm=True, block=8, edit=0.95),
    "trust": dict(REV, trust=0.95, block=8),
    "drain": dict(REV, vis=0.98, remask=0.2, rmax=1, stable=1.0, block=8, tau_draft=0.5, refresh="never"),
    "infill": dict(tau=0.99, gen=0),
    "infill-window": dict(REV, gen=0, block=8),
}


def prompts():
    out = []
    for name in ("tiny-llada-0.json", "tiny-llada-1.json", "tiny-llada-2.json"):
        out.append(json.load(open(os.path.join(DATA, name))))
    for name in sorted(os.listdir(os.path.join(DATA, "recipes"))):
        out += json.load(open(os.path.join(DATA, "recipes", name)))["runs"]
    seen, unique = set(), []
    for r in out:
        if r["prompt"] not in seen:
            unique.append((r["prompt"], r["prompt_ids"]))
        seen.add(r["prompt"])
    return unique


def template(net, ids, kind):
    """Words around holes: what the model itself would begin with, then its own words further on."""
    words = json.load(open(os.path.join(DATA, "tiny-llada-0.json")))["traces"]["thr0.9"]["final_ids"]
    if kind % 3 == 0:
        return words[:6] + [-1] * 9 + words[15:20] + [-1] * 6
    if kind % 3 == 1:
        return [-1] * 7 + words[7:12] + [-1] * 3 + words[15:18]
    return [-1] * 12 + words[12:20] + [-1] * 12


def main():
    net = Net(MODEL)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name in sys.argv[2:] or RECIPES:
        s = dict(BASE, **RECIPES[name])
        runs, tried = [], 0
        for k, (text, ids) in enumerate(prompts()):
            if len(ids) > 44 or len(runs) == 3:
                continue
            canvas = template(net, ids, k) if name.startswith("infill") else [-1] * s["gen"]
            windowed = s["mbsd"] != "off" or s["dppr"]
            d = (Window if windowed else Blocks)(net, ids, canvas, s, 100 + k)
            tried += 1
            try:
                d.run()
            except Close:
                continue
            run = dict(prompt=text, prompt_ids=ids, seed=100 + k, final_ids=d.result(),
                       stats={a: int(b) for a, b in d.stats.items()}, trace=d.trace)
            if name.startswith("infill"):
                run["canvas"] = canvas
            runs.append(run)
        what = [e[0] for r in runs for t in r["trace"] if windowed for e in t.get("merge", []) + t.get("events", [])]
        print(name, len(runs), "of", tried, [r["stats"]["passes"] for r in runs],
              {e: what.count(e) for e in sorted(set(what))})
        assert len(runs) == 3, name
        with open(os.path.join(sys.argv[1], name + ".json"), "w") as f:
            f.write('{"settings":%s,"runs":[\n' % json.dumps(s))
            f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in runs))
            f.write("\n]}\n")


if __name__ == "__main__":
    main()
