// Servers that fail: one in a process of its own that can be killed, and one in between that cuts.

import { spawn } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import { command } from "./browser.mjs";

/** Starts a server on this port, or a free one. It ends with this process at the latest. */
export async function startServer(port = 0) {
  const [program, ...args] = command;
  const child = spawn(program, args, { env: { ...process.env, PORT: String(port) }, stdio: ["pipe", "pipe", "inherit"] });
  let said = "";
  const url = await new Promise((resolve, reject) => {
    child.once("exit", () => reject(new Error(`the server did not start: ${said}`)));
    child.stdout.on("data", (piece) => {
      said += piece;
      const told = /http:\/\/\S+:\d+/.exec(said);
      if (told) resolve(told[0]);
    });
  });
  return {
    url,
    port: Number(new URL(url).port),
    /** It is there, and does nothing more. */
    freeze: () => child.kill("SIGSTOP"),
    async kill() {
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  };
}

/**
 * Stands before the server at `url`. What it does with the next run is up to `next`: after some text
 * it cuts both connections (`how: "cut"`), ends the page's as if all was well (`"end"`), or cuts the
 * page's once the server is done (`"late"`).
 */
export async function startProxy(url) {
  const proxy = { next: null };
  const server = http.createServer((request, response) => {
    const headers = { ...request.headers, host: new URL(url).host, ...(request.headers.origin && { origin: url }) };
    const isRun = request.url === "/agent";
    const next = isRun ? proxy.next : null;
    if (isRun) proxy.next = null;
    const upstream = http.request(url + request.url, { method: request.method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      let seen = "";
      let isOver = false;
      answer.setEncoding("latin1");
      answer.on("data", (piece) => {
        if (isOver) return;
        seen += piece;
        // Not a byte more.
        const rest = next && seen.includes(next.after) ? seen.length - seen.indexOf(next.after) - next.after.length : 0;
        isOver = next && seen.includes(next.after);
        response.write(piece.slice(0, piece.length - rest), "latin1");
        if (!isOver || next.how === "late") return;
        if (next.how === "cut") setImmediate(() => response.destroy());
        else response.end();
        upstream.destroy();
      });
      answer.on("end", () => next?.how === "late" ? response.destroy() : response.end());
      answer.on("error", () => {});
    });
    upstream.on("error", () => response.destroy());
    request.pipe(upstream);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return Object.assign(proxy, {
    url: `http://127.0.0.1:${server.address().port}`,
    close() {
      server.closeAllConnections();
      server.close();
    },
  });
}
