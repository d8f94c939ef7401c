"""gguf.py - small GGUF v3 files written and read with numpy, for the reference programs of this folder.  Written from the
format's description, apart from the C code that it helps to check."""
import struct

import numpy as np

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
# name: number, values a block, bytes a block
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "q4_K": (12, 256, 144)}


def _string(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def _value(kind, v):
    if kind == STR:
        return _string(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def key(name, kind, v):
    if isinstance(v, list):
        return _string(name) + struct.pack("<IIQ", ARR, kind, len(v)) + b"".join(_value(kind, x) for x in v)
    return _string(name) + struct.pack("<I", kind) + _value(kind, v)


def write(path, keys, tensors):
    """keys: bytes of key(); tensors: (name, shape slowest first, type, bytes)."""
    infos, at = b"", 0
    for name, shape, typ, data in tensors:
        infos += _string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
        infos += struct.pack("<IQ", TYPES[typ][0], at)
        at += -(-len(data) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _, _, _, data in tensors:
            f.write(data + bytes(-len(data) % 32))


# ---------------------------------------------------------------- block formats: encode to bytes, decode to float32


def _f16(x):
    return np.asarray(x, np.float16)


def encode(typ, x):
    """Rounds to nearest; good enough for random weights."""
    x = np.asarray(x, np.float32).ravel()
    if typ == "f32":
        return x.tobytes()
    if typ == "f16":
        return _f16(x).tobytes()
    b = x.reshape(-1, TYPES[typ][1])
    n = len(b)
    out = np.zeros((n, TYPES[typ][2]), np.uint8)
    if typ == "q8_0":
        d = _f16(np.abs(b).max(1) / 127)
        inv = np.where(d == 0, 0, 1 / np.where(d == 0, 1, d).astype(np.float32))
        out[:, :2] = d.view(np.uint8).reshape(n, 2)
        out[:, 2:] = np.clip(np.rint(b * inv[:, None]), -127, 127).astype(np.int8).view(np.uint8)
    elif typ == "q4_0":
        peak = b[np.arange(n), np.abs(b).argmax(1)]
        d = _f16(peak / -8)
        inv = np.where(d == 0, 0, 1 / np.where(d == 0, 1, d).astype(np.float32))
        q = np.clip(np.rint(b * inv[:, None]) + 8, 0, 15).astype(np.uint8)
        out[:, :2] = d.view(np.uint8).reshape(n, 2)
        out[:, 2:] = q[:, :16] | q[:, 16:] << 4
    elif typ == "q4_K":
        s = b.reshape(n, 8, 32)
        low, high = np.minimum(s.min(2), 0), s.max(2)
        scale, least = (high - low) / 15, -low
        d, dmin = _f16(scale.max(1) / 63), _f16(least.max(1) / 63)
        six = lambda v, u: np.clip(np.rint(v / np.maximum(u.astype(np.float32), 1e-12)[:, None]), 0, 63).astype(np.uint8)
        sc, mn = six(scale, d), six(least, dmin)
        step = d.astype(np.float32)[:, None] * sc
        q = np.rint((s + (dmin.astype(np.float32)[:, None] * mn)[..., None]) / np.maximum(step, 1e-12)[..., None])
        q = np.clip(q, 0, 15).astype(np.uint8)
        out[:, 0:2], out[:, 2:4] = d.view(np.uint8).reshape(n, 2), dmin.view(np.uint8).reshape(n, 2)
        out[:, 4:8] = sc[:, :4] | (sc[:, 4:] >> 4) << 6
        out[:, 8:12] = mn[:, :4] | (mn[:, 4:] >> 4) << 6
        out[:, 12:16] = (sc[:, 4:] & 15) | (mn[:, 4:] & 15) << 4
        out[:, 16:] = (q[:, 0::2] | q[:, 1::2] << 4).reshape(n, 128)
    return out.tobytes()


def decode(typ, data):
    if typ in ("f32", "f16"):
        return np.frombuffer(data, np.float32 if typ == "f32" else np.float16).astype(np.float32)
    b = np.frombuffer(data, np.uint8).reshape(-1, TYPES[typ][2])
    n = len(b)
    d = b[:, :2].copy().view(np.float16).astype(np.float32)
    if typ == "q8_0":
        return (b[:, 2:].copy().view(np.int8) * d).ravel()
    if typ == "q4_0":
        return ((np.concatenate([b[:, 2:] & 15, b[:, 2:] >> 4], 1).astype(np.float32) - 8) * d).ravel()
    dmin = b[:, 2:4].copy().view(np.float16).astype(np.float32)
    sc, mn = np.empty((n, 8), np.uint8), np.empty((n, 8), np.uint8)
    sc[:, :4], mn[:, :4] = b[:, 4:8] & 63, b[:, 8:12] & 63
    sc[:, 4:] = b[:, 12:16] & 15 | (b[:, 4:8] >> 6) << 4
    mn[:, 4:] = b[:, 12:16] >> 4 | (b[:, 8:12] >> 6) << 4
    q = np.empty((n, 8, 32), np.float32)
    nib = b[:, 16:].reshape(n, 4, 32)
    q[:, 0::2], q[:, 1::2] = nib & 15, nib >> 4
    return (q * (d * sc)[..., None] - (dmin * mn)[..., None]).astype(np.float32).ravel()


# ---------------------------------------------------------------- reading


def read(path):
    """keys as a dict, tensors as a dict of float64 arrays, slowest dimension first."""
    m = memoryview(open(path, "rb").read())
    at = 4

    def take(fmt):
        nonlocal at
        v = struct.unpack_from("<" + fmt, m, at)[0]
        at += struct.calcsize("<" + fmt)
        return v

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return bytes(m[at - n:at]).decode("utf-8", "replace")

    def value(kind):
        if kind == STR:
            return text()
        if kind == ARR:
            kind, n = take("I"), take("Q")
            return [value(kind) for _ in range(n)]
        return take({0: "B", 1: "b", 2: "H", 3: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", 10: "Q", 11: "q", 12: "d"}[kind])

    assert bytes(m[:4]) == b"GGUF"
    take("I")
    n_tensors, n_keys = take("Q"), take("Q")
    keys, infos, tensors = {}, [], {}
    for _ in range(n_keys):
        name = text()
        keys[name] = value(take("I"))
    for _ in range(n_tensors):
        name, n_dims = text(), take("I")
        infos.append((name, [take("Q") for _ in range(n_dims)], take("I"), take("Q")))
    base = -(-at // 32) * 32
    names = {v[0]: k for k, v in TYPES.items()}
    for name, dims, typ, offset in infos:
        number, block, size = TYPES[names[typ]]
        n = int(np.prod(dims)) // block * size
        flat = decode(names[typ], bytes(m[base + offset:base + offset + n]))
        tensors[name] = flat.astype(np.float64).reshape(dims[::-1])
    return keys, tensors
