// The official TypeScript SDK, version 2, which chooses the lifecycle.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { report } from "./report.mjs";

const client = new Client(
  { name: "typescript-2", version: "1.0.0" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: process.argv[3] },
  },
);
let content;
client.setRequestHandler("elicitation/create", async () =>
  content ? { action: "accept", content } : { action: "decline" },
);
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await report({
  list: () => client.listTools(),
  call: (name, args, onprogress) =>
    client.callTool({ name, arguments: args }, { onprogress }),
  answer: (given) => (content = given),
});
await client.close();
