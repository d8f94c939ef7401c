#!/usr/bin/python3
"""network.py MODEL IDS [OUT.f32] - the forward pass of a small GGUF in float64 numpy, every row's scores.  IDS: 1,2,3

An independent account of what the networks compute: architectures llada, dream, llada-moe, llama."""
import sys

import numpy as np

import gguf


class Network:
    def __init__(self, path):
        self.keys, self.t = gguf.read(path)
        self.arch = self.keys["general.architecture"]
        g = lambda k, default=None: self.keys.get(self.arch + "." + k, default)
        self.layers, self.d = g("block_count"), g("embedding_length")
        self.heads, self.kv = g("attention.head_count"), g("attention.head_count_kv")
        self.hd = self.d // self.heads
        self.eps, self.theta = g("attention.layer_norm_rms_epsilon"), g("rope.freq_base")
        self.used = g("expert_used_count")
        self.causal = self.arch == "llama"
        self.shift = self.arch == "dream"
        self.vocab = len(self.keys["tokenizer.ggml.tokens"])
        self.mask = self.keys.get("tokenizer.ggml.mask_token_id", -1)
        self.head = self.t.get("output.weight", self.t["token_embd.weight"])[:self.vocab]

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t[name]

    def rotate(self, x, pos):
        half = self.hd // 2
        step = self.theta ** (-2.0 * np.arange(half) / self.hd)
        if "rope_freqs.weight" in self.t:
            step = step / self.t["rope_freqs.weight"]
        a = pos[:, None, None] * step
        out = np.empty_like(x)
        halves = self.arch in ("dream", "llada-moe")
        i, j = (slice(0, half), slice(half, None)) if halves else (slice(0, None, 2), slice(1, None, 2))
        out[..., i] = x[..., i] * np.cos(a) - x[..., j] * np.sin(a)
        out[..., j] = x[..., j] * np.cos(a) + x[..., i] * np.sin(a)
        return out

    def linear(self, x, name):
        y = x @ self.t[name + ".weight"].T
        return y + self.t[name + ".bias"] if name + ".bias" in self.t else y

    def feed_forward(self, h, b):
        silu = lambda v: v / (1 + np.exp(-v))
        if self.used is None:
            return self.linear(silu(self.linear(h, b + "ffn_gate")) * self.linear(h, b + "ffn_up"), b + "ffn_down")
        s = self.linear(h, b + "ffn_gate_inp")
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        out = np.zeros_like(h)
        for r in range(len(h)):
            for e in np.argsort(-s[r], kind="stable")[:self.used]:
                w = lambda name: self.t[b + name + ".weight"][e]
                out[r] += p[r, e] * (w("ffn_down_exps") @ (silu(w("ffn_gate_exps") @ h[r]) * (w("ffn_up_exps") @ h[r])))
        return out

    def new_cache(self, n):
        """Keys and values of n positions in every layer."""
        return np.zeros((self.layers, 2, n, self.kv, self.hd))

    def rows(self, pos, tokens, cache, n_seen):
        """Scores of rows (position, token), raw: of the position itself.  Their K,V go into the cache; each sees the
        cached positions 0..n_seen-1."""
        pos, tokens = np.asarray(pos), np.asarray(tokens)
        x = self.t["token_embd.weight"][tokens]
        for l in range(self.layers):
            b = "blk.%d." % l
            h = self.norm(x, b + "attn_norm.weight")
            q = self.linear(h, b + "attn_q").reshape(-1, self.heads, self.hd)
            k = self.linear(h, b + "attn_k").reshape(-1, self.kv, self.hd)
            v = self.linear(h, b + "attn_v").reshape(-1, self.kv, self.hd)
            if b + "attn_q_norm.weight" in self.t:
                q, k = self.norm(q, b + "attn_q_norm.weight"), self.norm(k, b + "attn_k_norm.weight")
            cache[l, 0, pos], cache[l, 1, pos] = self.rotate(k, pos), v
            per = self.heads // self.kv
            ks, vs = (np.repeat(cache[l, i, :n_seen], per, 1) for i in (0, 1))
            s = np.einsum("ihd,jhd->hij", self.rotate(q, pos), ks) / np.sqrt(self.hd)
            if self.causal:
                s = np.where(np.arange(n_seen)[None, :] <= pos[:, None], s, -np.inf)
            s = np.exp(s - s.max(-1, keepdims=True))
            s /= s.sum(-1, keepdims=True)
            a = np.einsum("hij,jhd->ihd", s, vs).reshape(len(pos), -1)
            x = x + self.linear(a, b + "attn_output")
            x = x + self.feed_forward(self.norm(x, b + "ffn_norm.weight"), b)
        return self.norm(x, "output_norm.weight") @ self.head.T

    def forward(self, tokens):
        n = len(tokens)
        return self.rows(np.arange(n), tokens, self.new_cache(n), n)


def main():
    net = Network(sys.argv[1])
    out = net.forward([int(t) for t in sys.argv[2].split(",")])
    print("%d rows of %d, deviation %.3f, best %s" % (*out.shape, out.std(), out.argmax(-1)[:8]))
    if len(sys.argv) > 3:
        out.astype(np.float32).tofile(sys.argv[3])


if __name__ == "__main__":
    main()
