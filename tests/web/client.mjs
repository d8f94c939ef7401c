// client.mjs - the server seen by the official openai client.      node client.mjs PROGRAM [COUNT]
// Chat and completions, streamed or not, stop, max_tokens, seed, logprobs, errors, leaving in mid-stream; then COUNT
// random prompts whose joined deltas must equal the whole answer, with stop strings cut from it at every byte.
import OpenAI, {APIError, BadRequestError, AuthenticationError} from "openai";
import {serve, check, count, random} from "./serve.mjs";

const [program, many = "500"] = process.argv.slice(2);
const server = await serve(program, "--metrics");
const client = new OpenAI({baseURL: server.url + "/v1", apiKey: "none", maxRetries: 0});
const model = "tiny-llada";
const user = content => [{role: "user", content}];

async function refused(promise, kind, status, param) {
  try {
    await promise;
  } catch (e) {
    check(e instanceof kind && e.status === status && (param === undefined || e.param === param), `${e.status} ${e.param} ${e.message}`);
    return;
  }
  check(false, "it was refused");
}

async function joined(body) {
  let text = "", finish = null, usage = null;
  const stream = await client.chat.completions.create({...body, stream: true, stream_options: {include_usage: true}});
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  return {text, finish, usage};
}

async function shapes() {
  check((await client.models.list()).data[0].id === model, "the list of models");
  const body = {model, messages: user("What is 4*9+57?"), max_tokens: 32};
  const whole = await client.chat.completions.create({...body, logprobs: true});
  const text = whole.choices[0].message.content, usage = whole.usage;
  check(whole.object === "chat.completion" && text.length > 0, "a chat answer");
  check(usage.completion_tokens > 0 && usage.completion_tokens <= 32 && usage.total_tokens === usage.prompt_tokens + usage.completion_tokens, "usage");
  check(usage.llada.passes > 0 && usage.llada.rows > 0 && usage.llada.revisions >= 0 && usage.llada.seconds > 0, "usage of our own");
  const probs = whole.choices[0].logprobs.content;
  check(probs.length === usage.completion_tokens && probs.every(t => t.logprob <= 0) && probs.map(t => t.token).join("") === text, "logprobs");
  const streamed = await joined(body);
  check(streamed.text === text && streamed.finish === whole.choices[0].finish_reason, "the stream is the answer");
  check(streamed.usage.completion_tokens === usage.completion_tokens, "usage at the end of the stream");
  const line = await client.completions.create({model, prompt: "Ben has 3 nuts.", max_tokens: 8, logprobs: 0});
  check(line.object === "text_completion" && line.usage.completion_tokens <= 8 && line.choices[0].logprobs.tokens.join("") === line.choices[0].text, "a completion");
  let pieces = "";
  for await (const chunk of await client.completions.create({model, prompt: "Ben has 3 nuts.", max_tokens: 8, stream: true})) pieces += chunk.choices[0]?.text ?? "";
  check(pieces === line.choices[0].text, "a completion, streamed");
  const filled = await client.completions.create({model, prompt: "Ben has ", suffix: " nuts left.", max_tokens: 4});
  check(filled.usage.completion_tokens <= 4, "infill by suffix");
  const few = await client.chat.completions.create({...body, max_tokens: 3});
  check(few.usage.completion_tokens <= 3, "max_tokens");
  const seeded = seed => client.chat.completions.create({...body, temperature: 1.5, seed});
  const [a, b] = [await seeded(7), await seeded(7)];
  check(a.choices[0].message.content === b.choices[0].message.content, "a seed gives the same answer");
  const vanilla = await client.chat.completions.create({...body, max_tokens: 8, llada: {recipe: "vanilla"}});
  check(vanilla.usage.llada.passes >= vanilla.usage.completion_tokens && vanilla.usage.llada.recipe === "vanilla", "a recipe by name");
}

async function errors() {
  const body = {model, messages: user("hi")};
  await refused(client.chat.completions.create({model, messages: []}), BadRequestError, 400, "messages");
  await refused(client.chat.completions.create({...body, max_tokens: 100000}), BadRequestError, 400, "max_tokens");
  await refused(client.chat.completions.create({...body, max_tokens: 5000}), BadRequestError, 400, "messages");
  await refused(client.chat.completions.create({...body, n: 3}), BadRequestError, 400, "n");
  await refused(client.chat.completions.create({...body, tools: [{type: "function", function: {name: "f"}}]}), BadRequestError, 400, "tools");
  await refused(client.chat.completions.create({...body, llada: {tauu: 1}}), BadRequestError, 400, "llada.tauu");
  await refused(client.embeddings.create({model, input: "x"}), APIError, 404);
  const locked = await serve(program, "--api-key", "secret");
  const other = key => new OpenAI({baseURL: locked.url + "/v1", apiKey: key, maxRetries: 0});
  await refused(other("wrong").models.list(), AuthenticationError, 401);
  check((await other("secret").models.list()).data.length === 1, "the right key");
  check(await locked.stop() === 0, "SIGTERM ends it with 0");
}

// A client that leaves frees the worker.
async function leaving() {
  const stream = await client.chat.completions.create({model, messages: user("Tell a story."), max_tokens: 256, stream: true, llada: {recipe: "vanilla", early: false}});
  for await (const chunk of stream) if (chunk) break;
  stream.controller.abort();
  const began = Date.now();
  while ((await (await fetch(server.url + "/props")).json()).running) check(Date.now() - began < 10000, "free within a pass");
  console.log(`client: the worker was free ${Date.now() - began} ms after the client left`);
}

async function streams(n) {
  const next = random(7), pick = list => list[next(list.length)];
  const names = ["Ben", "Sara", "Tom", "Anna"], things = ["nuts", "pens", "cards", "apples"];
  const prompts = [
    () => `What is ${next(20)}*${next(20)}+${next(99)}?`,
    () => `${pick(names)} has ${next(90)} ${pick(things)}. ${pick(names)} buys ${next(50)} more. How many are there?`,
    () => `Sort: ${next(99)} ${next(99)} ${next(99)} ${next(99)}`,
    () => `Return JSON with name, job and city. The singer ${pick(names)} comes from Cairo.`,
    () => Array.from({length: 1 + next(12)}, () => String.fromCodePoint(pick([65 + next(26), 0xe9, 0x20ac, 0x1f600 + next(60), 32]))).join(""),
  ];
  let stopped = 0;
  for (let i = 0; i < n; i++) {
    const body = {model, messages: user(pick(prompts)() || "?"), max_tokens: 8 + next(25), temperature: i % 3 ? 0 : 1.2, seed: i};
    const whole = await client.chat.completions.create(body), text = whole.choices[0].message.content;
    const one = await joined(body);
    check(one.text === text && one.finish === whole.choices[0].finish_reason, `prompt ${i}: '${one.text}' and '${text}'`);
    if (!text.length) continue;
    const at = i % text.length, stop = [...text.slice(at)].slice(0, 1 + next(4)).join("");
    if (!/^[^\ud800-\udfff]/.test(stop)) continue;
    const cut = {...body, stop: [stop, "never written"]};
    const short = await client.chat.completions.create(cut), again = await joined(cut);
    check(short.choices[0].message.content === text.slice(0, text.indexOf(stop)) && short.choices[0].finish_reason === "stop", `prompt ${i}: stop '${stop}' in '${text}': '${short.choices[0].message.content}'`);
    check(again.text === short.choices[0].message.content && again.finish === "stop", `prompt ${i}: stop '${stop}', streamed`);
    stopped++;
  }
  console.log(`client: ${n} prompts streamed as they are whole, ${stopped} of them cut by a stop string`);
}

try {
  await shapes();
  await errors();
  await leaving();
  await streams(+many);
  console.log(`client: ${count()} checks`);
} finally {
  await server.stop();
}
