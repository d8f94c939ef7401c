// load.mjs - mixed load on a server of ours for a while, and what became of its memory and descriptors.
// usage: node load.mjs PROGRAM SECONDS [CLIENTS]   Traffic goes to 127.0.0.1 only and ends with the time given.
import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const [program, seconds = "60", clients = "4"] = process.argv.slice(2);
const port = 20000 + (process.pid % 20000);
const base = `http://127.0.0.1:${port}`;
const server = spawn(program, ["serve", "--port", String(port), "-t", "1", "-q"], { stdio: ["ignore", "ignore", "inherit"] });
const counts = {}, latency = {};

function state() {
  const status = readFileSync(`/proc/${server.pid}/status`, "utf8");
  return { rss_kb: Number(/VmRSS:\s+(\d+)/.exec(status)[1]), fds: readdirSync(`/proc/${server.pid}/fd`).length };
}

// The same numbers on every run: a small generator with a seed.
let seed = 12345;
const random = () => ((seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648);
const question = () => `What is ${1 + Math.floor(random() * 9)}*${1 + Math.floor(random() * 9)}+${Math.floor(random() * 90)}?`;

async function post(path, body, signal) {
  return fetch(base + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
}

const chat = (extra) => ({ messages: [{ role: "user", content: question() }], max_tokens: 32, ...extra });

const kinds = {
  async chat() { return (await (await post("/v1/chat/completions", chat())).json()).choices ? "ok" : "refused"; },
  async stream() { return (await (await post("/v1/chat/completions", chat({ stream: true }))).text()).includes("[DONE]") ? "ok" : "refused"; },
  async completion() { return (await (await post("/v1/completions", { prompt: "3*6=", suffix: " Answer: 31", max_tokens: 8 })).json()).choices ? "ok" : "refused"; },
  async abort() {
    const stop = new AbortController();
    setTimeout(() => stop.abort(), random() * 200);
    try {
      const r = await post("/v1/chat/completions", chat({ stream: true }), stop.signal);
      await r.text();
      return "finished";
    } catch { return "aborted"; }
  },
  async bad() { return String((await post("/v1/chat/completions", { messages: 7 })).status); },
  async health() { return String((await fetch(base + "/health")).status); },
};

async function client(until) {
  const names = Object.keys(kinds);
  while (Date.now() < until) {
    const name = names[Math.floor(random() * names.length)], began = performance.now();
    let what;
    try { what = await kinds[name](); } catch (e) { what = "failed: " + (e.cause?.code ?? e.message); }
    counts[`${name} ${what}`] = (counts[`${name} ${what}`] ?? 0) + 1;
    (latency[name] ??= []).push(performance.now() - began);
    await sleep(20);
  }
}

for (let i = 0; i < 200; i++) {
  try { if ((await fetch(base + "/health")).ok) break; } catch { await sleep(50); }
}
await Promise.all(Array.from({ length: Number(clients) }, () => client(Date.now() + 30000))); // caches fill, threads start
const before = state(), began = Date.now(), until = began + Number(seconds) * 1000;
await Promise.all(Array.from({ length: Number(clients) }, () => client(until)));
await sleep(500);
const after = state();
const at = (a, q) => { a.sort((x, y) => x - y); return Math.round(a[Math.floor(q * (a.length - 1))]); };
console.log(JSON.stringify({ seconds: Math.round((Date.now() - began) / 1000), before, after }));
for (const k of Object.keys(counts).sort()) console.log(`${k}: ${counts[k]}`);
for (const k of Object.keys(latency)) console.log(`${k}: median ${at(latency[k], 0.5)} ms, 99 % ${at(latency[k], 0.99)} ms`);
const failed = Object.keys(counts).some((k) => k.includes("failed"));
const grown = after.rss_kb > before.rss_kb * 1.1 + 4096 || after.fds > before.fds + 2;
server.kill("SIGTERM");
process.exit(failed || grown ? 1 : 0);
