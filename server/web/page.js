// page.js - the page of `llada serve`: asks, draws the canvas from the stream's differences, replays it.
"use strict";

const $ = id => document.getElementById(id);
const make = (tag, name, text) => {
  const e = document.createElement(tag);
  if (name) e.className = name;
  if (text !== undefined) e.textContent = text;
  return e;
};

// ---------------------------------------------------------------- the canvas

const band = c => c < 0.5 ? 0 : c < 0.8 ? 1 : c < 0.95 ? 2 : c < 0.99 ? 3 : 4;

// Cells of a run, and every difference that made them: frame k is what differences 0..k-1 leave.
class Run {
  constructor(positions) {
    this.positions = positions;
    this.frames = [];
    this.at = 0;
    this.cells = this.blank();
  }
  blank() {
    return Array.from({length: this.positions}, () => ({text: "", p: 0, state: "mask", changes: 0, bytes: null}));
  }
  add(frame) {
    this.frames.push(frame);
    this.go(this.frames.length);
  }
  go(k) {
    if (k < this.at) {
      this.cells = this.blank();
      this.at = 0;
    }
    for (; this.at < k; this.at++)
      for (const [pos, text, p, state, changes, bytes] of this.frames[this.at].cells)
        this.cells[pos] = {text, p, state, changes, bytes: bytes || null, frame: this.at};
  }
}

// What each cell shows.  A character may be spread over the bytes of several tokens: the first of them shows it.
function texts(cells) {
  const out = cells.map(c => c.text);
  for (let i = 0; i < cells.length; i++) {
    if (!cells[i].bytes) continue;
    let bytes = [], end = i;
    while (end < cells.length && cells[end].bytes) bytes = bytes.concat(cells[end++].bytes);
    out[i] = new TextDecoder().decode(new Uint8Array(bytes));
    for (let k = i + 1; k < end; k++) out[k] = "";
    i = end - 1;
  }
  return out;
}

// Which cells are behind the end of their text, or of their hole.
function behind(cells) {
  let ended = false;
  return cells.map(c => ended = c.state !== "given" && (ended || c.state === "end"));
}

// Draws only what differs from what is there.
function draw(run, box, final) {
  while (box.children.length > run.positions) box.lastChild.remove();
  while (box.children.length < run.positions) box.append(make("span"));
  const shown = texts(run.cells), ended = behind(run.cells);
  run.cells.forEach((c, i) => {
    const e = box.children[i];
    let name = "cell " + c.state, text = c.state === "end" ? "·" : shown[i];
    if (c.state === "visible" || c.state === "draft") name += " c" + band(c.p);
    if (c.changes) name += " changed";
    if (c.frame === run.at - 1 && c.state !== "mask" && !final) name += " new";
    const gone = final && ended[i];
    if (gone) text = "";
    if (e.className !== name) e.className = name;
    if (e.textContent !== text) e.textContent = text;
    e.hidden = gone || (c.state === "settled" && text === "");
    const tip = c.state === "mask" || c.state === "given" ? "" : `${c.state}, ${(100 * c.p).toFixed(1)} %` + (c.changes ? `, revised ${c.changes}×` : "");
    if (e.title !== tip) e.title = tip;
  });
}

// Every frame as a line, every position as a column.
function drawMap(run, map) {
  const css = getComputedStyle(document.documentElement), colour = n => css.getPropertyValue(n).trim();
  const rows = run.frames.length, keep = run.at, g = map.getContext("2d");
  map.width = run.positions;
  map.height = Math.max(rows, 1);
  run.go(0);
  for (let k = 0; k < rows; k++) {
    run.go(k + 1);
    run.cells.forEach((c, i) => {
      g.fillStyle = c.state === "mask" ? colour("--mask") : c.state === "settled" ? colour("--accent")
        : c.state === "end" || c.state === "given" ? colour("--paper") : c.changes ? colour("--changed") : colour("--c" + band(c.p));
      g.fillRect(i, k, 1, 1);
    });
  }
  run.go(keep);
}

// ---------------------------------------------------------------- the server

let props = null, running = null;

function headers() {
  const h = {"Content-Type": "application/json"};
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}

async function problem(response) {
  let text = response.status + " " + response.statusText;
  try { text = (await response.json()).error.message; } catch { /* not ours */ }
  if (response.status === 401) $("key-row").hidden = false;
  return new Error(text);
}

// Calls on(name, data) for each event of the answer.
async function events(path, body, signal, on) {
  const response = await fetch(path, {method: "POST", headers: headers(), body: JSON.stringify(body), signal});
  if (!response.ok) throw await problem(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      let name = "message", data = "";
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (data) on(name, JSON.parse(data));
    }
  }
}

async function loadProps() {
  const response = await fetch("/props", {headers: headers()});
  if (response.status === 503) {
    $("model").textContent = "loading…";
    setTimeout(start, 1000);
    return;
  }
  if (!response.ok) throw await problem(response);
  props = await response.json();
  $("model").textContent = props.model.name;
  $("max").value = saved.max || props.max_tokens;
  $("max").max = props.ctx;
  $("recipe").replaceChildren(...props.recipes.map(n => new Option(n + (n === props.recipe ? " (default)" : ""), n)));
  $("recipe").value = props.recipes.includes(saved.recipe) ? saved.recipe : props.recipe;
  for (const [key, k] of Object.entries(props.keys)) {
    const label = make("label", "", key), input = make("input");
    input.name = key;
    input.id = "key-" + key;
    input.placeholder = k.value;
    input.value = (saved.keys || {})[key] || "";
    label.htmlFor = input.id;
    label.title = input.title = k.help + " (" + k.values + ")";
    $("recipe-keys").append(label, input);
  }
}

// ---------------------------------------------------------------- settings and history: this browser only

function read(name, fallback) {
  try { return JSON.parse(localStorage.getItem(name)) || fallback; } catch { return fallback; }
}
function write(name, value) {
  try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* full, or forbidden: nothing is kept */ }
}
const saved = read("llada.settings", {});
let turns = read("llada.turns", []);

function recipeKeys() {
  const keys = {};
  for (const input of $("recipe-keys").querySelectorAll("input")) if (input.value.trim()) keys[input.name] = input.value.trim();
  return keys;
}

function settings() {
  const keys = recipeKeys();
  write("llada.settings", {max: +$("max").value || undefined, recipe: $("recipe").value, keys, theme: saved.theme});
  const body = {stream: true, max_tokens: +$("max").value || undefined, llada: {events: true, ...keys}};
  if (props && $("recipe").value && $("recipe").value !== props.recipe) body.llada.recipe = $("recipe").value;
  if ($("temp").value !== "") body.temperature = +$("temp").value;
  if ($("seed").value !== "") body.seed = +$("seed").value;
  return body;
}

// ---------------------------------------------------------------- one answer on the page

class Answer {
  constructor(before, after) {
    this.box = make("article", "answer");
    this.box.append(make("h2", "", "Answer"));
    this.text = make("div", "canvas");
    this.cells = make("span");
    this.text.setAttribute("aria-hidden", "true");
    if (before) this.text.append(make("span", "given", before));
    this.text.append(this.cells);
    if (after) this.text.append(make("span", "given", after));
    this.spoken = make("div", "spoken"); // the same for those who listen
    this.before = before || "";
    this.after = after || "";
    this.box.append(this.text, this.spoken);
    $("log").append(this.box);
    $("empty").hidden = true;
  }
  begin(start) {
    this.run = new Run(start.positions);
    this.max = start.max_tokens;
    draw(this.run, this.cells, false);
  }
  frame(f) {
    this.run.add(f);
    draw(this.run, this.cells, false);
    const settled = this.run.cells.filter(c => c.state === "settled").length;
    this.live(`pass ${f.pass}, ${settled} settled, ${f.rows} rows, ${f.seconds.toFixed(1)} s`);
  }
  live(text) {
    if (!this.numbers) this.box.append(this.numbers = make("p", "numbers"));
    this.numbers.textContent = text;
  }
  plain(text) {
    this.spoken.textContent = this.before + text + this.after;
    if (!this.run) this.cells.textContent = text;
  }
  done(d) {
    this.plain(d.text);
    if (this.numbers) this.numbers.remove();
    this.result(d);
    if (!this.run || !this.run.frames.length) return;
    this.final = d.text;
    this.showFinal();
    this.replayTools();
  }
  // The answer itself: a stop string may have cut it, so not simply the last frame.
  showFinal() {
    draw(this.run, this.cells, true);
    const ended = behind(this.run.cells);
    if (texts(this.run.cells).filter((_, i) => !ended[i]).join("") !== this.final)
      this.cells.replaceChildren(make("span", "cell settled", this.final));
  }
  replayTools() {
    const run = this.run, n = run.frames.length;
    const row = make("div", "replay"), play = make("button", "", "▶"), slider = make("input"), out = make("output");
    const map = make("canvas", "map");
    play.type = "button";
    play.setAttribute("aria-label", "Play again");
    slider.type = "range";
    slider.min = 0;
    slider.max = n;
    slider.value = n;
    slider.setAttribute("aria-label", "Replay");
    map.setAttribute("aria-hidden", "true");
    map.title = "Each line is a moment, each column a position: click to go there";
    const show = k => {
      const f = k ? run.frames[k - 1] : {pass: 0, seconds: 0};
      run.go(k);
      if (k === n) this.showFinal();
      else draw(run, this.cells, false);
      slider.value = k;
      const label = `pass ${f.pass}, ${f.seconds.toFixed(2)} s`;
      out.textContent = label;
      slider.setAttribute("aria-valuetext", k === n ? "the answer, " + label : label);
    };
    let timer = 0;
    const halt = () => {
      clearTimeout(timer);
      timer = 0;
      play.textContent = "▶";
      play.setAttribute("aria-label", "Play again");
    };
    const step = k => {
      show(k);
      if (k >= n) return halt();
      const wait = (run.frames[k].seconds - (k ? run.frames[k - 1].seconds : 0)) * 1000;
      timer = setTimeout(step, Math.min(Math.max(wait, 120), 1500), k + 1);
    };
    play.onclick = () => {
      if (timer) return halt();
      play.textContent = "❚❚";
      play.setAttribute("aria-label", "Pause");
      step(+slider.value >= n ? 0 : +slider.value);
    };
    slider.oninput = () => { halt(); show(+slider.value); };
    map.onclick = e => { halt(); show(Math.min(n, 1 + Math.floor(e.offsetY / map.clientHeight * n))); };
    row.append(play, slider, out);
    this.box.append(map, row);
    drawMap(run, map);
    this.redraw = () => drawMap(run, map);
    maps.push(this);
    show(n);
  }
  result(d) {
    const u = d.usage, l = u && u.llada, list = make("dl", "numbers");
    const number = (value, name) => {
      const pair = make("div");
      pair.append(make("dt", "", name), make("dd", "", value));
      list.append(pair);
    };
    if (!u) return;
    number(u.completion_tokens, u.completion_tokens === 1 ? "token" : "tokens");
    number(l.passes, l.passes === 1 ? "pass" : "passes");
    number(l.tokens_per_pass.toFixed(1), "tokens a pass");
    number(l.first_block_seconds.toFixed(2) + " s", "to the first settled block");
    number(l.seconds.toFixed(2) + " s", "in all");
    if (l.revisions) number(l.revisions, l.revisions === 1 ? "revision" : "revisions");
    if (d.finish_reason === "length" && !this.after && !this.run?.cells.some(c => c.state === "given")) number("full", "every place is taken");
    this.box.append(list);
  }
  fail(message) {
    this.box.append(Object.assign(make("p", "error", message), {role: "alert"}));
  }
}
const maps = [];

function busy(stop) {
  running = stop;
  for (const b of document.querySelectorAll("button.send")) b.hidden = !!stop;
  $("clear").disabled = !!stop;
  for (const b of document.querySelectorAll("button.stop")) b.hidden = !stop;
}

// Sends body and shows what comes; the text of the answer, or null.
async function generate(path, body, answer) {
  const abort = new AbortController();
  let text = null;
  busy(abort);
  $("status").textContent = "Writing.";
  try {
    await events(path, body, abort.signal, (name, d) => {
      if (name === "start") answer.begin(d);
      if (name === "canvas") answer.frame(d);
      if (name === "done") answer.done(d), text = d.text;
      if (name === "error") throw new Error(d.error.message);
      stay();
    });
    $("status").textContent = text === null ? "No answer came." : "Answer: " + text;
    if (text === null) answer.fail("The server ended the connection.");
  } catch (e) {
    const message = abort.signal.aborted ? "Stopped." : e instanceof TypeError ? "The server cannot be reached." : e.message;
    answer.fail(message);
    $("status").textContent = message;
  }
  busy(null);
  stay();
  return text;
}

// Keeps the end in sight for those who are there.
function stay() {
  const root = document.documentElement;
  if (root.scrollHeight - root.scrollTop - root.clientHeight < 240) root.scrollTop = root.scrollHeight;
}

// ---------------------------------------------------------------- chat and infill

function ask(text) {
  $("log").append(make("div", "ask", text));
  $("empty").hidden = true;
}

async function chat() {
  const text = $("prompt").value;
  if (!text.trim() || running) return;
  const earlier = $("earlier").checked ? turns.flatMap(t => [{role: "user", content: t.ask}, {role: "assistant", content: t.answer}]) : [];
  const body = {...settings(), messages: [...earlier, {role: "user", content: text}]};
  $("prompt").value = "";
  ask(text);
  const answer = new Answer();
  document.documentElement.scrollTop = document.documentElement.scrollHeight;
  const said = await generate("/v1/chat/completions", body, answer);
  if (said === null) {
    if (!$("prompt").value) $("prompt").value = text;
  } else {
    turns.push({ask: text, answer: said});
    turns = turns.slice(-50);
    write("llada.turns", turns);
  }
  $("prompt").focus();
}

const HOLE = /\{\{\d+\}\}/;
const marked = () => HOLE.test($("before").value + $("after").value);

// One hole between two texts, or a text with holes marked in it.
async function infill() {
  if (running) return;
  const before = $("before").value, after = $("after").value, body = settings();
  delete body.llada.gen;
  if (marked()) {
    delete body.max_tokens;
    await generate("/infill", {...body, input_template: before + after}, new Answer());
  } else {
    const given = {input_prefix: before, input_suffix: after, max_tokens: +$("holes").value || 12};
    await generate("/infill", {...body, ...given}, new Answer(before, after));
  }
}

function mode(name) {
  for (const m of ["chat", "infill"]) {
    $("mode-" + m).setAttribute("aria-pressed", m === name);
    $(m + "-form").hidden = m !== name;
  }
}

function clear() {
  turns = [];
  write("llada.turns", turns);
  maps.length = 0;
  $("log").replaceChildren();
  $("empty").hidden = false;
  $("prompt").focus();
}

// ---------------------------------------------------------------- colours

const THEMES = {"": "◐", light: "☀", dark: "☾"};
function theme(name) {
  saved.theme = name;
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  $("theme").textContent = THEMES[name];
  $("theme").setAttribute("aria-label", "Colours: " + (name || "as the system has them"));
  for (const a of maps) a.redraw();
}

// ---------------------------------------------------------------- begin

async function start() {
  try {
    await loadProps();
  } catch (e) {
    $("model").textContent = e.message;
    if (!$("key-row").hidden) $("settings").classList.add("open");
  }
}

$("chat-form").onsubmit = e => { e.preventDefault(); chat(); };
$("infill-form").onsubmit = e => { e.preventDefault(); infill(); };
$("prompt").onkeydown = e => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  chat();
};
document.addEventListener("keydown", e => { if (e.key === "Escape" && running) running.abort(); });
for (const b of document.querySelectorAll("button.stop")) b.onclick = () => running && running.abort();
for (const id of ["before", "after"]) $(id).oninput = () => $("holes").disabled = marked();
$("clear").onclick = clear;
$("mode-chat").onclick = () => mode("chat");
$("mode-infill").onclick = () => mode("infill");
$("theme").onclick = () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(saved.theme || "") + 1) % names.length]);
  settings();
};
$("settings-button").onclick = () => {
  const open = $("settings").classList.toggle("open");
  $("settings-button").setAttribute("aria-expanded", open);
  if (open) $("recipe").focus();
};
$("key").value = sessionStorage.getItem("llada.key") || "";
$("key").onchange = () => { sessionStorage.setItem("llada.key", $("key").value); start(); };
theme(saved.theme || "");
for (const t of turns) {
  ask(t.ask);
  new Answer().plain(t.answer);
}
start();
