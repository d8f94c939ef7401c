#!/usr/bin/python3
"""make_model.py OUT --arch llada|dream|llada-moe|llama [sizes] [--type f32|f16|q8_0|q4_0|q4_K] [--decoded]

Random weights in the form of published files, for comparing programs.  The same arguments give the same file.
--decoded: the values that --type would give, written as f32.  Needs numpy."""
import argparse

import numpy as np

import gguf

MERGES = ["\u0120 t", "h e", "i n", "\u0120t he", "e r", "o n", "\u0120 a", "r e"]
SPECIALS = {
    "llada": ["<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "dream": ["<|beginoftext|>", "<|endoftext|>", "<|mask|>", "<|im_start|>", "<|im_end|>", "<tool_call>"],
    "llada-moe": ["<|startoftext|>", "<|endoftext|>", "<|mask|>", "<role>", "</role>", "<|role_end|>"],
    "llama": ["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}
PRE = {"llada": "llada-moe", "dream": "qwen2", "llada-moe": "llada-moe", "llama": "llama-bpe"}


def byte_tokens():
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    return [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]


def vocabulary(arch, size):
    t = byte_tokens() + [m.replace(" ", "") for m in MERGES]
    t += ["w%d\u0120" % i for i in range(size - len(t) - 6)]
    return t + SPECIALS[arch], [1] * (size - 6) + [3] * 6


def keys_of(a, hd):
    arch, n = a.arch, a.vocab
    tokens, types = vocabulary(arch, n)
    k = lambda name, kind, v: gguf.key(name, kind, v)
    p = arch + "."
    out = [k("general.architecture", gguf.STR, arch), k("general.name", gguf.STR, "random " + arch),
           k("general.file_type", gguf.U32, {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q4_K": 15}[a.type]),
           k("general.quantization_version", gguf.U32, 2),
           k(p + "block_count", gguf.U32, a.layers), k(p + "context_length", gguf.U32, 512),
           k(p + "embedding_length", gguf.U32, a.embd), k(p + "feed_forward_length", gguf.U32, a.ff),
           k(p + "attention.head_count", gguf.U32, a.heads), k(p + "attention.head_count_kv", gguf.U32, a.kv),
           k(p + "attention.layer_norm_rms_epsilon", gguf.F32, 1e-6 if arch == "dream" else 1e-5),
           k(p + "rope.freq_base", gguf.F32, a.theta), k(p + "vocab_size", gguf.U32, n)]
    if arch != "dream":
        out.append(k(p + "rope.dimension_count", gguf.U32, hd))
    if arch != "llama":
        out.append(k(p + "attention.causal", gguf.BOOL, False))
    if arch in ("llada", "llada-moe"):
        out.append(k("diffusion.shift_logits", gguf.BOOL, False))
    if arch == "llada-moe":
        out += [k(p + "expert_count", gguf.U32, a.experts), k(p + "expert_used_count", gguf.U32, a.used),
                k(p + "expert_feed_forward_length", gguf.U32, a.ff)]
    out += [k("tokenizer.ggml.model", gguf.STR, "gpt2"), k("tokenizer.ggml.pre", gguf.STR, PRE[arch]),
            k("tokenizer.ggml.tokens", gguf.STR, tokens), k("tokenizer.ggml.token_type", gguf.I32, types),
            k("tokenizer.ggml.merges", gguf.STR, MERGES), k("tokenizer.ggml.bos_token_id", gguf.U32, n - 6),
            k("tokenizer.ggml.eos_token_id", gguf.U32, n - 5), k("tokenizer.ggml.padding_token_id", gguf.U32, n - 5),
            k("tokenizer.ggml.add_bos_token", gguf.BOOL, arch == "llama")]
    if arch != "llama":
        out.append(k("tokenizer.ggml.mask_token_id", gguf.U32, n - 4))
    return out


def tensors_of(a, hd):
    """(name, shape slowest first, deviation or "norm", may be quantised)"""
    d, kv, ff = a.embd, a.kv * hd, a.ff
    t = [("token_embd.weight", (a.vocab, d), 1.0, True)]
    for i in range(a.layers):
        add = lambda name, shape, std, q=True: t.append(("blk.%d.%s" % (i, name), shape, std, q))
        add("attn_norm.weight", (d,), "norm", False)
        for name, rows in (("attn_q", d), ("attn_k", kv), ("attn_v", kv)):
            add(name + ".weight", (rows, d), a.std)
            if a.arch == "dream":
                add(name + ".bias", (rows,), 0.3, False)
            if a.arch == "llada-moe" and name != "attn_v":
                add(name + "_norm.weight", (hd,), "norm", False)
        add("attn_output.weight", (d, d), a.std)
        add("ffn_norm.weight", (d,), "norm", False)
        if a.arch == "llada-moe":
            add("ffn_gate_inp.weight", (a.experts, d), 0.3, False)
            add("ffn_gate_exps.weight", (a.experts, ff, d), a.std)
            add("ffn_up_exps.weight", (a.experts, ff, d), a.std)
            add("ffn_down_exps.weight", (a.experts, d, ff), a.std * 2)
        else:
            add("ffn_gate.weight", (ff, d), a.std)
            add("ffn_up.weight", (ff, d), a.std)
            add("ffn_down.weight", (d, ff), a.std)
    t.append(("output_norm.weight", (d,), "norm", False))
    if not a.tied:
        t.append(("output.weight", (a.vocab, d), a.outstd, True))
    return t


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--arch", choices=SPECIALS, required=True)
    p.add_argument("--type", choices=gguf.TYPES, default="f32")
    p.add_argument("--decoded", action="store_true")
    p.add_argument("--tied", action="store_true")
    p.add_argument("--factors", action="store_true", help="llama: rope_freqs.weight")
    for name, v in (("layers", 2), ("embd", 256), ("heads", 4), ("kv", 2), ("ff", 256), ("vocab", 512), ("experts", 8),
                    ("used", 3), ("seed", 1)):
        p.add_argument("--" + name, type=int, default=v)
    for name, v in (("std", 0.1), ("outstd", 0.3), ("theta", 5e5)):
        p.add_argument("--" + name, type=float, default=v)
    a = p.parse_args()
    hd, out = a.embd // a.heads, []
    for i, (name, shape, std, q) in enumerate(tensors_of(a, hd)):
        g = np.random.Generator(np.random.PCG64([a.seed, i]))
        n = int(np.prod(shape))
        x = 0.5 + g.random(n) if std == "norm" else g.standard_normal(n) * std
        typ = a.type if q else "f32"
        data = gguf.encode(typ, x)
        if a.decoded:
            typ, data = "f32", gguf.decode(typ, data).tobytes()
        out.append((name, shape, typ, data))
    if a.factors:
        out.append(("rope_freqs.weight", (hd // 2,), "f32", gguf.encode("f32", np.geomspace(1, 8, hd // 2))))
    gguf.write(a.out, keys_of(a, hd), out)


main()
