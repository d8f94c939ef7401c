// page.mjs - the page in headless Chromium.      node page.mjs PROGRAM [FOLDER FOR SCREENSHOTS [ONE PART]]
// Types, watches, stops, replays, fills in; dark, by keyboard alone, on a phone.  No console error, no failed request, and
// no request to anywhere else.  Waits for states, never for times.  What must be seen while it happens is made long: a
// token a pass, each pass over the whole canvas; what a quick machine may skip is drawn from a stream made here.
import {mkdtempSync, rmSync, existsSync, mkdirSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {chromium} from "playwright-core";
import {serve, check, count} from "./serve.mjs";

const [program, shots, only] = process.argv.slice(2);
const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);
const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const PATIENCE = 120000; // until a state counts as never reached: for the slowest machine

const server = await serve(program);
const home = mkdtempSync(join(tmpdir(), "llada-page-"));
const trouble = [];
let last = null;
if (shots) mkdirSync(shots, {recursive: true});

async function open(options = {}) {
  const dir = mkdtempSync(join(home, "profile-"));
  const context = await chromium.launchPersistentContext(dir, {executablePath, args, chromiumSandbox: false,
    viewport: {width: 1180, height: 820}, ...options});
  const page = context.pages()[0] || await context.newPage();
  page.on("console", m => { if (m.type() === "error" || m.type() === "warning") trouble.push("console: " + m.text()); });
  page.on("pageerror", e => trouble.push("page: " + e.message));
  page.on("request", r => {
    if (!r.url().startsWith(server.url + "/") && !r.url().startsWith("data:")) trouble.push("leaves: " + r.url());
  });
  page.on("requestfailed", r => {
    const why = r.failure().errorText;
    if (!/ABORTED/.test(why)) trouble.push(`failed: ${r.url()} ${why}`);
  });
  page.setDefaultTimeout(PATIENCE);
  last = page;
  await page.goto(server.url + "/");
  await page.waitForFunction(() => document.getElementById("recipe").options.length > 0);
  return {context, page, shot: name => shots ? page.screenshot({path: join(shots, name + ".png")}) : null};
}

const done = (page, n = 1) =>
  page.waitForFunction(k => document.querySelectorAll(".answer .replay").length >= k, n);
const shown = page => page.evaluate(() => [...document.querySelectorAll(".answer:last-child .cell")]
  .filter(e => !e.hidden && !e.classList.contains("end")).map(e => e.textContent).join(""));
const cells = (page, state) => page.locator(`.answer:last-child .cell.${state}`).count();
const props = async () => (await fetch(server.url + "/props")).json();

// One token a pass over so many places, to the last one.
async function slow(page, places) {
  if (!await page.isVisible("#recipe")) await page.click("#settings-button");
  await page.selectOption("#recipe", "vanilla");
  await page.fill("#max", String(places));
  if (!await page.isVisible("#key-early")) await page.click("details summary");
  await page.fill("#key-early", "false");
}
async function send(page, text) {
  await page.fill("#prompt", text);
  await page.click("#chat-form .send");
}
// In the middle: some places written, some not, and the count of passes grows.
async function forming(page) {
  const pass = () => page.evaluate(() => +(document.querySelector(".answer:last-child .numbers")?.textContent
    .match(/pass (\d+)/)?.[1] ?? 0));
  await page.waitForFunction(() => document.querySelector(".answer:last-child .cell:not(.mask)"));
  const first = await pass();
  await page.waitForFunction(k => +(document.querySelector(".answer:last-child .numbers").textContent
    .match(/pass (\d+)/)?.[1] ?? 0) > k, first);
  check(await cells(page, "mask") > 0, "it is still forming");
  return pass();
}
async function freed() {
  const began = Date.now();
  while ((await props()).running) check(Date.now() - began < PATIENCE, "the worker is free again");
}

async function chat() {
  const {context, page, shot} = await open();
  await shot("1-empty");
  check(await page.title() === "llada", "the title");
  await send(page, "What is 4*9+57?");
  await done(page);
  await shot("2-answer");
  const answer = await shown(page), spoken = await page.textContent(".answer .spoken");
  check(answer.length > 5 && answer === spoken, `what is shown is the answer: '${answer}', '${spoken}'`);
  const body = {messages: [{role: "user", content: "What is 4*9+57?"}]};
  const direct = await (await fetch(server.url + "/v1/chat/completions",
    {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)})).json();
  check(answer === direct.choices[0].message.content, "the page shows what the API answers");
  const numbers = await page.textContent(".answer .numbers");
  for (const word of ["tokens", "passes", "tokens a pass", "first settled block", "in all"])
    check(numbers.includes(word), `${word} in '${numbers}'`);
  check(await page.evaluate(() => document.activeElement.id) === "prompt", "the next question can be typed at once");

  // an error of the server is shown as such
  await page.fill("#max", "600");
  await send(page, "Too long.");
  await page.waitForFunction(() => /positions/.test(document.querySelector(".answer:last-child .error")?.textContent));
  check(await page.inputValue("#prompt") === "Too long.", "what was asked is not lost");
  trouble.splice(0, trouble.length, ...trouble.filter(t => !/status of 400/.test(t))); // that one was asked for

  // history stays in the browser
  await page.reload();
  await page.waitForSelector(".answer");
  check(await page.textContent(".answer .spoken") === spoken, "the history is back after a reload");
  await page.click("#clear");
  await page.reload();
  check(await page.locator(".answer").count() === 0, "and gone when cleared");
  await context.close();
}

async function watch() {
  const {context, page, shot} = await open();
  const places = 400; // so many passes that a quick machine can be watched too
  await slow(page, places);
  await send(page, "What is 4*9+57?");
  await page.waitForSelector(".answer .cell.mask");
  await forming(page);
  await shot("3-forming");
  await done(page);
  const spoken = await page.textContent(".answer .spoken"), slider = page.locator(".answer .replay input");
  check(await shown(page) === spoken, "all of it is there in the end");
  const frames = +await slider.getAttribute("max");
  check(frames > 2 && frames <= places + 1, `frames to go through: ${frames}`);

  // the scrubber
  await slider.fill("0");
  check(await cells(page, "mask") === places, "at the start all is masked");
  let before = places + 1;
  for (let k = 1; k < frames; k += Math.ceil(frames / 6)) {
    await slider.fill(String(k));
    const masks = await cells(page, "mask");
    check(masks > 0 && masks < before, `frame ${k}: ${masks} masks, ${before} before`);
    before = masks;
  }
  await slider.fill(String(frames >> 1));
  await shot("4-replay");
  await slider.focus();
  await page.keyboard.press("End");
  check(await shown(page) === spoken, "at the end the answer is back");
  await page.click(".answer .map", {position: {x: 5, y: 2}});
  check(await slider.inputValue() < frames / 4, "a click on the map goes there");
  const play = page.locator(".answer .replay button");
  await slider.fill(String(frames - 2));
  await play.click();
  await page.waitForFunction(() => document.querySelector(".answer .replay button").textContent === "▶");
  check(await slider.inputValue() === String(frames) && await shown(page) === spoken, "played to its end");
  await context.close();
}

async function stop() {
  const {context, page, shot} = await open();
  await slow(page, 400);
  await send(page, "Tell a story about a cat.");
  const pass = await forming(page);
  await page.click("#chat-form .stop");
  await page.waitForSelector(".answer .error");
  check(await page.textContent(".answer .error") === "Stopped.", "it says that it was stopped");
  check(pass < 400 && await cells(page, "mask") > 0, "it was in the middle");
  await freed();
  check(await page.isHidden("#chat-form .stop") && await page.isVisible("#chat-form .send"), "the next may come");
  check(await page.inputValue("#prompt") === "Tell a story about a cat.", "what was asked can be sent again");
  await shot("5-stopped");
  await context.close();
}

// Every state of a cell, from a stream that is made here.
async function states() {
  const {context, page, shot} = await open();
  const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
  const frame = (pass, list) => event("canvas", {pass, rows: 8, refresh: false, seconds: pass / 10, cells: list});
  const usage = {prompt_tokens: 3, completion_tokens: 4, total_tokens: 7, llada: {passes: 3, tokens_per_pass: 1.3,
    first_block_seconds: 0.2, seconds: 0.3, revisions: 1}};
  await page.route("**/v1/chat/completions", r => r.fulfill({status: 200, contentType: "text/event-stream", body:
    event("start", {id: "x", model: "m", recipe: "default", positions: 6, block: 4, max_tokens: 6, prompt_tokens: 3}) +
    frame(1, [[0, "One", 0.3, "visible", 0], [1, " two", 0.7, "visible", 0], [2, " tree", 0.9, "draft", 0]]) +
    frame(2, [[0, "One", 0.97, "visible", 0], [1, "", 0, "mask", 1], [2, " three", 0.995, "visible", 1]]) +
    frame(3, [[0, "One", 0.99, "settled", 0], [1, " two", 0.99, "settled", 1], [2, " three", 0.99, "settled", 1],
      [3, " \ufffd", 0.9, "settled", 0, [32, 0xe2, 0x82]], [4, "\ufffd", 0.9, "settled", 0, [0xac]],
      [5, "", 0.9, "end", 0]]) +
    event("done", {text: "One two three €", finish_reason: "stop", usage})}));
  await send(page, "Count.");
  await done(page);
  check(await shown(page) === "One two three €", "characters over two tokens: " + await shown(page));
  check((await page.textContent(".answer .numbers")).includes("revision"), "revisions are counted");
  const slider = page.locator(".answer .replay input");
  await slider.fill("1");
  check(await cells(page, "visible") === 2 && await cells(page, "draft") === 1 && await cells(page, "mask") === 3, "1");
  const colour = n => page.evaluate(i => getComputedStyle(document.querySelectorAll(".answer .cell")[i]).backgroundColor, n);
  check(await colour(0) !== await colour(1), "the colour says how sure it is");
  await slider.fill("2");
  check(await cells(page, "changed") === 2, "what was revised is marked");
  const line = await page.evaluate(() => getComputedStyle(document.querySelector(".answer .cell.visible.changed"))
    .textDecorationLine);
  check(line === "underline", "by a line, not by colour alone");
  await shot("6-states");
  await context.close();
}

async function infill() {
  const {context, page, shot} = await open();
  await page.click("#mode-infill");
  check(await page.isHidden("#prompt") && await page.isVisible("#before"), "the other form");
  await page.fill("#before", "Ben has 60 nuts. He gives half of them to Sara. ");
  await page.fill("#after", " nuts are left.");
  await page.fill("#holes", "10");
  await page.click("#infill-form .send");
  await done(page);
  await shot("7-infill");
  const text = await page.textContent(".answer .spoken");
  check(text.startsWith("Ben has 60") && text.endsWith(" nuts are left."), "the text around it stands: " + text);
  // holes anywhere
  await page.fill("#before", "Ben has {{3}} nuts and Sara has {{2}} pens.");
  await page.fill("#after", "");
  check(await page.isDisabled("#holes"), "the marks say how many places");
  await page.click("#infill-form .send");
  await done(page, 2);
  await shot("8-holes");
  const filled = await page.textContent(".answer:last-child .spoken");
  check(/^Ben has .* nuts and Sara has .* pens\.$/.test(filled), "every hole is filled: " + filled);
  check(await shown(page) === filled, "and shown so: " + await shown(page));
  await context.close();
}

async function dark() {
  const {context, page, shot} = await open({colorScheme: "dark"});
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  check(/rgb\(19, 23, 21\)/.test(await paper()), "dark, as the system: " + await paper());
  await slow(page, 32);
  await send(page, "Sort: 7 3 9 1");
  await done(page);
  const slider = page.locator(".answer .replay input");
  await slider.fill(String(+await slider.getAttribute("max") >> 1));
  await shot("9-dark");
  await page.click("#theme");
  check(/rgb\(251, 250, 247\)/.test(await paper()), "light, by the button");
  await page.reload();
  check(/rgb\(251, 250, 247\)/.test(await paper()), "and so it stays");
  await context.close();
}

// Everything without a mouse; what has the focus can be seen and has a name.
async function keyboard() {
  const {context, page, shot} = await open();
  const focus = () => page.evaluate(() => {
    const e = document.activeElement, s = getComputedStyle(e);
    const name = e.getAttribute("aria-label") || (e.labels && e.labels[0] && e.labels[0].textContent) || e.textContent;
    return {id: e.id, tag: e.tagName, name: (name || "").trim(),
      outline: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0};
  });
  const visited = [];
  for (let i = 0; i < 20; i++) {
    await page.keyboard.press("Tab");
    const f = await focus();
    if (f.tag === "BODY") break;
    check(f.name && f.outline, "focus is named and visible: " + JSON.stringify(f));
    visited.push(f.id || f.name);
  }
  for (const id of ["mode-chat", "mode-infill", "theme", "prompt", "recipe", "max", "seed"])
    check(visited.includes(id), `${id} by Tab: ${visited}`);
  await page.focus(".skip");
  await page.keyboard.press("Enter");
  await page.focus("#prompt");
  await page.keyboard.type("What is 4*9+57?");
  await page.keyboard.press("Enter");
  await done(page);
  const status = await page.textContent("#status");
  check(status.startsWith("Answer: "), "the answer is announced: " + status);
  await page.focus(".answer .replay input");
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  const text = await page.getAttribute(".answer .replay input", "aria-valuetext");
  check(/pass \d/.test(text), "the slider says where it is: " + text);
  await shot("10-keyboard");
  // Esc stops
  await slow(page, 400);
  await page.focus("#prompt");
  await page.keyboard.type("Tell a story about a dog.");
  await page.keyboard.press("Enter");
  await forming(page);
  await page.keyboard.press("Escape");
  await page.waitForSelector(".answer:last-child .error");
  check(await page.textContent("#status") === "Stopped.", "that is announced too");
  await freed();
  await context.close();
}

async function phone() {
  const {context, page, shot} = await open({viewport: {width: 360, height: 640}, deviceScaleFactor: 2, isMobile: true,
    hasTouch: true});
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
  check(await fits(), "nothing is wider than the screen");
  await page.fill("#prompt", "Ben has 60 nuts. He gives half of them to Sara. He buys 52 more. How many nuts has he?");
  await page.tap("#chat-form .send");
  await done(page);
  check(await fits(), "nor with an answer");
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  const covered = await page.evaluate(() => {
    const a = document.querySelector(".answer .replay button").getBoundingClientRect();
    const top = document.elementFromPoint(a.left + a.width / 2, a.top + a.height / 2);
    return !top || !top.closest(".replay");
  });
  check(!covered, "the replay's button can be reached");
  await shot("11-phone");
  await page.tap("#settings-button");
  check(await page.isVisible("#recipe") && await fits(), "settings open, and fit");
  await shot("12-phone-settings");
  const small = await page.evaluate(() => [...document.querySelectorAll("button, input, select")]
    .filter(e => e.offsetParent && e.type !== "range" && e.type !== "checkbox" && e.getBoundingClientRect().height < 28)
    .map(e => e.id || e.textContent));
  check(small.length === 0, "targets are large enough: " + small);
  await context.close();
}

try {
  for (const part of [chat, watch, stop, states, infill, dark, keyboard, phone])
    if (!only || part.name === only) await part();
  check(trouble.length === 0, trouble.join("\n"));
  console.log(`page: ${count()} checks`);
} catch (e) {
  console.log(trouble.join("\n"));
  if (shots && last) await last.screenshot({path: join(shots, "failed.png")}).catch(() => {});
  console.error(e);
  process.exitCode = 1;
} finally {
  await server.stop();
  rmSync(home, {recursive: true, force: true, maxRetries: 10, retryDelay: 200});
}
