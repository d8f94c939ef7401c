// serve.mjs - starts the real program on a free port, for the other files.
import {spawn} from "node:child_process";

export async function serve(program, ...flags) {
  const child = spawn(program, ["serve", "--any-port", ...flags], {stdio: ["ignore", "inherit", "pipe"]});
  let said = "";
  const port = await new Promise((found, failed) => {
    child.stderr.on("data", d => {
      said += d;
      const at = said.match(/http:\/\/[^/]*:(\d+)\//);
      if (at) found(+at[1]);
    });
    child.on("exit", code => failed(new Error(`the server ended with ${code}: ${said}`)));
  });
  const stop = () => new Promise(over => {
    child.removeAllListeners("exit");
    child.on("exit", (code, signal) => over(code ?? signal));
    child.kill("SIGTERM");
  });
  return {port, url: `http://127.0.0.1:${port}`, pid: child.pid, stop};
}

let checks = 0;
export function check(good, what) {
  checks++;
  if (good) return;
  throw new Error("not so: " + what);
}
export const count = () => checks;

// A small generator, so that a failure can be repeated.
export function random(seed) {
  let s = seed >>> 0;
  return n => {
    s = (Math.imul(s, 1664525) + 1013904223) >>> 0;
    return Math.floor(s / 4294967296 * n);
  };
}
