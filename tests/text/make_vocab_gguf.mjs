// make_vocab_gguf.mjs - a GGUF file that holds a vocabulary and no tensors, made from a published tokenizer.json.
//     node make_vocab_gguf.mjs TOKENIZER.json PRE OUT.gguf
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const STR = 8, ARR = 9, U32 = 4, I32 = 5;
const NORMAL = 1, CONTROL = 3, USER = 4, UNUSED = 5;

const u32 = (v) => { const b = Buffer.alloc(4); b.writeUInt32LE(v); return b; };
const u64 = (v) => { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt(v)); return b; };
const str = (s) => { const b = Buffer.from(s, "utf8"); return Buffer.concat([u64(b.length), b]); };
const strings = (a) => Buffer.concat([u32(STR), u64(a.length), ...a.map(str)]);
const ints = (a) => Buffer.concat([u32(I32), u64(a.length), Buffer.from(Int32Array.from(a).buffer)]);

// Spellings and types by id; holes in the numbering become unused tokens.
function tokenList(json) {
  const spelling = new Map(Object.entries(json.model.vocab).map(([s, id]) => [id, [s, NORMAL]]));
  for (const t of json.added_tokens) spelling.set(t.id, [t.content, t.special ? CONTROL : USER]);
  let n = 0;
  for (const id of spelling.keys()) n = Math.max(n, id + 1);
  return Array.from({ length: n }, (_, id) => spelling.get(id) ?? [`[PAD${id}]`, UNUSED]);
}

export function vocabGguf(json, pre) {
  const tokens = tokenList(json);
  const merges = json.model.merges.map((m) => (Array.isArray(m) ? m.join(" ") : m));
  const keys = [
    ["general.architecture", STR, str("llama")],
    ["tokenizer.ggml.model", STR, str("gpt2")],
    ["tokenizer.ggml.pre", STR, str(pre)],
    ["tokenizer.ggml.tokens", ARR, strings(tokens.map((t) => t[0]))],
    ["tokenizer.ggml.token_type", ARR, ints(tokens.map((t) => t[1]))],
    ["tokenizer.ggml.merges", ARR, strings(merges)],
  ];
  const head = [Buffer.from("GGUF"), u32(3), u64(0), u64(keys.length)];
  const body = Buffer.concat([...head, ...keys.flatMap(([k, type, value]) => [str(k), u32(type), value])]);
  return Buffer.concat([body, Buffer.alloc((32 - (body.length % 32)) % 32)]);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [, , from, pre, to] = process.argv;
  if (!to) throw new Error("usage: make_vocab_gguf.mjs TOKENIZER.json PRE OUT.gguf");
  writeFileSync(to, vocabGguf(JSON.parse(readFileSync(from)), pre));
}
