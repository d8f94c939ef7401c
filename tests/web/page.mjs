// page.mjs - the page in headless Chromium.      node page.mjs PROGRAM [FOLDER FOR SCREENSHOTS [ONE PART]]
// Types, watches, stops, replays, fills in; dark, by keyboard alone, on a phone.  No console error, no failed request, and
// no request to anywhere else.
import {mkdtempSync, rmSync, existsSync, mkdirSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {chromium} from "playwright-core";
import {serve, check, count} from "./serve.mjs";

const [program, shots, only] = process.argv.slice(2);
const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);
const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];
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
  page.on("request", r => { if (!r.url().startsWith(server.url + "/") && !r.url().startsWith("data:")) trouble.push("leaves: " + r.url()); });
  page.on("requestfailed", r => { if (!/ABORTED/.test(r.failure().errorText)) trouble.push("failed: " + r.url() + " " + r.failure().errorText); });
  page.setDefaultTimeout(25000);
  last = page;
  await page.goto(server.url + "/");
  await page.waitForFunction(() => document.getElementById("recipe").options.length > 0);
  return {context, page, shot: name => shots ? page.screenshot({path: join(shots, name + ".png")}) : null};
}

const done = (page, n = 1) => page.waitForFunction(k => document.querySelectorAll(".answer .replay").length >= k, n);
const shown = page => page.evaluate(() => [...document.querySelectorAll(".answer:last-child .cell")]
  .filter(e => !e.hidden && !e.classList.contains("end")).map(e => e.textContent).join(""));

async function chat() {
  const {context, page, shot} = await open();
  await shot("1-empty");
  check(await page.title() === "llada", "the title");
  await page.fill("#prompt", "What is 4*9+57?");
  // watching: frames are counted from within, as the small model is quick
  await page.evaluate(() => {
    window.seen = {mask: 0, visible: 0, draft: 0, settled: 0};
    new MutationObserver(() => {
      for (const s of Object.keys(window.seen)) window.seen[s] = Math.max(window.seen[s], document.querySelectorAll(".answer .cell." + s).length);
    }).observe(document.getElementById("log"), {subtree: true, childList: true, attributes: true});
  });
  await page.click("#chat-form .send");
  await page.waitForSelector(".answer .cell.visible, .answer .cell.settled");
  await shot("2-forming");
  await done(page);
  await shot("3-answer");
  const seen = await page.evaluate(() => window.seen);
  // a quick machine may be done within the first frames, so that revisable tokens are never drawn
  check(seen.mask > 60 && seen.settled > 5, "tokens appear and settle: " + JSON.stringify(seen));
  const answer = await shown(page), spoken = await page.textContent(".answer .spoken");
  check(answer.length > 5 && answer === spoken, `what is shown is the answer: '${answer}', '${spoken}'`);
  const direct = await (await fetch(server.url + "/v1/chat/completions", {method: "POST", headers: {"Content-Type": "application/json"},
    body: JSON.stringify({messages: [{role: "user", content: "What is 4*9+57?"}]})})).json();
  check(answer === direct.choices[0].message.content, "the page shows what the API answers");
  const numbers = await page.textContent(".answer .numbers");
  for (const word of ["tokens", "passes", "tokens a pass", "first settled block", "in all"]) check(numbers.includes(word), word);

  // the scrubber
  const slider = page.locator(".answer .replay input");
  await slider.fill("0");
  check(await page.locator(".answer .cell.mask").count() === 128, "at the start all is masked");
  await slider.fill("1");
  const masks = await page.locator(".answer .cell.mask").count();
  check(masks > 0 && masks < 128, `after the first frame some are written: ${masks} masks`);
  await shot("4-replay");
  await slider.focus();
  await page.keyboard.press("End");
  check(await shown(page) === spoken, "at the end the answer is back");
  await page.click(".answer .replay button");
  await page.waitForFunction(() => document.querySelector(".answer .replay input").value === document.querySelector(".answer .replay input").max, null, {polling: 50});
  await page.waitForFunction(() => document.querySelector(".answer .replay button").textContent === "▶");
  check(await shown(page) === spoken, "after playing the answer is back");

  // stop: many slow passes, cut short
  await page.selectOption("#recipe", "vanilla");
  await page.fill("#max", "256");
  await page.fill("#prompt", "Tell a story about a cat.");
  await page.click("#chat-form .send");
  await page.waitForFunction(() => document.querySelectorAll(".answer:last-child .cell:not(.mask)").length > 1);
  await page.click("#chat-form .stop");
  await page.waitForSelector(".answer:last-child .error");
  check(await page.textContent(".answer:last-child .error") === "Stopped.", "it says that it was stopped");
  const idle = async () => (await (await fetch(server.url + "/props")).json()).running === 0;
  let looks = 0;
  while (!await idle() && looks < 100) looks++, await new Promise(r => setTimeout(r, 20));
  check(looks < 100, "the worker is free again");
  await shot("5-stopped");

  // an error of the server is shown as such
  await page.fill("#max", "600");
  await page.fill("#prompt", "Too long.");
  await page.click("#chat-form .send");
  await page.waitForFunction(() => document.querySelectorAll(".answer:last-child .error").length === 1 && /positions/.test(document.querySelector(".answer:last-child .error").textContent));
  trouble.splice(0, trouble.length, ...trouble.filter(t => !/status of 400/.test(t))); // that one was asked for

  // history stays in the browser
  await page.reload();
  await page.waitForSelector(".answer");
  check((await page.textContent(".answer .spoken")) === spoken, "the history is back after a reload");
  await page.click("#clear");
  await page.reload();
  check(await page.locator(".answer").count() === 0, "and gone when cleared");
  await context.close();
}

async function infill() {
  const {context, page, shot} = await open();
  await page.click("#mode-infill");
  await page.fill("#before", "Ben has 60 nuts. He gives half of them to Sara. ");
  await page.fill("#after", " nuts are left.");
  await page.fill("#holes", "10");
  await page.click("#infill-form .send");
  await done(page);
  await shot("6-infill");
  const text = await page.textContent(".answer .spoken");
  check(text.startsWith("Ben has 60") && text.endsWith(" nuts are left."), "the text around it stands: " + text);
  await context.close();
}

async function dark() {
  const {context, page, shot} = await open({colorScheme: "dark"});
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const by_system = await paper();
  check(/rgb\(19, 23, 21\)/.test(by_system), "dark, as the system: " + by_system);
  await page.fill("#prompt", "Sort: 7 3 9 1");
  await page.keyboard.press("Enter");
  await done(page);
  await page.locator(".answer .replay input").fill("2");
  await shot("7-dark");
  await page.click("#theme");
  check(/rgb\(251, 250, 247\)/.test(await paper()), "light, by the button");
  await context.close();
}

// Everything without a mouse; what has the focus can be seen and has a name.
async function keyboard() {
  const {context, page, shot} = await open();
  const focus = () => page.evaluate(() => {
    const e = document.activeElement, s = getComputedStyle(e);
    const label = e.getAttribute("aria-label") || (e.labels && e.labels[0] && e.labels[0].textContent) || e.textContent;
    return {id: e.id, tag: e.tagName, name: (label || "").trim(), outline: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0};
  });
  const visited = [];
  for (let i = 0; i < 20; i++) {
    await page.keyboard.press("Tab");
    const f = await focus();
    if (f.tag === "BODY") break;
    check(f.name && f.outline, "focus is named and visible: " + JSON.stringify(f));
    visited.push(f.id || f.name);
  }
  for (const id of ["mode-chat", "mode-infill", "theme", "prompt", "recipe", "max", "seed"]) check(visited.includes(id), `${id} by Tab: ${visited}`);
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
  check(/pass 1/.test(text), "the slider says where it is: " + text);
  await shot("8-keyboard");
  // Esc stops
  await page.selectOption("#recipe", "vanilla");
  await page.focus("#prompt");
  await page.keyboard.type("Tell a story about a dog.");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".answer:last-child .cell:not(.mask)").length > 0);
  await page.keyboard.press("Escape");
  await page.waitForSelector(".answer:last-child .error");
  await context.close();
}

async function phone() {
  const {context, page, shot} = await open({viewport: {width: 360, height: 640}, deviceScaleFactor: 2, isMobile: true, hasTouch: true});
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
  check(await fits(), "nothing is wider than the screen");
  await page.fill("#prompt", "Ben has 60 nuts. He gives half of them to Sara. He buys 52 more. How many nuts has he?");
  await page.tap("#chat-form .send");
  await done(page);
  check(await fits(), "nor with an answer");
  await shot("9-phone");
  await page.tap("#settings-button");
  check(await page.isVisible("#recipe") && await fits(), "settings open, and fit");
  await shot("10-phone-settings");
  const small = await page.evaluate(() => [...document.querySelectorAll("button, input, select")].filter(e => e.offsetParent && e.type !== "range" && e.type !== "checkbox" && e.getBoundingClientRect().height < 28).map(e => e.id || e.textContent));
  check(small.length === 0, "targets are large enough: " + small);
  await context.close();
}

try {
  for (const part of [chat, infill, dark, keyboard, phone])
    if (!only || part.name === only) await part();
  check(trouble.length === 0, trouble.join("\n"));
  console.log(`page: ${count()} checks`);
} catch (e) {
  console.log(trouble.join("\n"));
  if (shots && last) await last.screenshot({path: join(shots, "failed.png")});
  console.error(e);
  process.exitCode = 1;
} finally {
  await server.stop();
  rmSync(home, {recursive: true, force: true, maxRetries: 10, retryDelay: 200});
}
