// The official TypeScript SDK, version 1: `initialize`.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { report } from "./report.mjs";

const client = new Client(
  { name: "typescript-1", version: "1.0.0" },
  { capabilities: { elicitation: {} } },
);
let content;
client.setRequestHandler(ElicitRequestSchema, async () =>
  content ? { action: "accept", content } : { action: "decline" },
);
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await report({
  list: () => client.listTools(),
  call: (name, args, onprogress) =>
    client.callTool({ name, arguments: args }, undefined, { onprogress }),
  answer: (given) => (content = given),
});
await client.close();
