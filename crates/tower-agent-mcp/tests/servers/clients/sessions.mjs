// A server of the official TypeScript SDK, version 1, written as its example is: it answers a
// session that it does not know with 400 and an error without an id.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const [port, mode] = process.argv.slice(2);
const sessions = new Map();
let begun = 0;
let calls = 0;

async function transport() {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (id) => {
      begun += 1;
      sessions.set(id, transport);
    },
  });
  const server = new McpServer({ name: "sessions", version: "1.0.0" });
  server.registerTool("count", { description: "Counts its calls." }, () => {
    calls += 1;
    return { content: [{ type: "text", text: `${calls}` }] };
  });
  await server.connect(transport);
  return transport;
}

async function body(request) {
  let text = "";
  for await (const piece of request) text += piece;
  return text ? JSON.parse(text) : undefined;
}

createServer(async (request, response) => {
  const message = await body(request);
  if (request.url === "/expire") {
    for (const [id, transport] of [...sessions]) {
      sessions.delete(id);
      if (mode === "closes") await transport.close();
    }
    response.end(`${begun}`);
    return;
  }
  const id = request.headers["mcp-session-id"];
  const known = sessions.get(id);
  if (request.method === "GET" && mode === "no stream") {
    response.writeHead(405).end();
  } else if (known) {
    await known.handleRequest(request, response, message);
  } else if (!id && message?.method === "initialize") {
    await (await transport()).handleRequest(request, response, message);
  } else if (request.method === "GET") {
    response.writeHead(400).end("Invalid or missing session ID");
  } else {
    const error = { code: -32000, message: "Bad Request: No valid session ID provided" };
    response.writeHead(400, { "content-type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
  }
}).listen(Number(port), "127.0.0.1", () => console.log("listening"));
