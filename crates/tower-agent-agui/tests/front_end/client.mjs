// Drives a server with the official AG-UI client: node client.mjs BASE_URL [PRESET..]
//
// The server answers POST and GET /scenarios/<preset>/<scenario>, and GET /runs, which says how many runs
// are under way: {"active": 0}. What each scenario is to do stands in its function below, the same
// for every preset. Bodies of 8 MiB and JSON nested 100,000 deep are to be refused with a 4xx.
// A scenario fails at a wrong event, message or state, and at any complaint of the client itself.

import assert from "node:assert/strict";
import http from "node:http";
import {
  Device, Session, assertHas, assertOrder, assertSuccess, canonical, deltas, kinds, of, takeComplaints, until,
} from "./harness.mjs";

const PRESETS = ["default", "potato", "adk_python", "adk_elixir", "trpc"];

const PATIENCE = 20_000;

const [base, ...chosen] = process.argv.slice(2);
if (!base) {
  console.log("usage: node client.mjs BASE_URL [PRESET..]");
  process.exit(2);
}
const root = base.replace(/\/$/, "");

const active = async () => (await (await fetch(`${root}/runs`)).json()).active;

const scenarios = {
  // The model streams "Hello from the agent." in more than one piece.
  async plain(session) {
    const events = await session.ask("Hello");
    assertSuccess(events);
    assert.ok(deltas(events, "TEXT_MESSAGE_CONTENT").length > 1, `text in pieces, got ${kinds(events)}`);
    assert.deepEqual(session.told, ["user: Hello", "assistant: Hello from the agent."]);
    const [usage] = events.at(-1).usage ?? [];
    assert.ok(usage?.inputTokens > 0 && usage.outputTokens > 0, `usage: ${JSON.stringify(usage)}`);
  },

  // The model thinks "Six times seven." and says "It is 42."
  async reasoning(session) {
    const events = await session.ask("What is six times seven?");
    assertSuccess(events);
    assertOrder(events, ["REASONING_START"], ["REASONING_MESSAGE_START"], ["REASONING_MESSAGE_CONTENT"],
      ["REASONING_MESSAGE_END"], ["REASONING_END"], ["TEXT_MESSAGE_START"]);
    assert.deepEqual(session.told, [
      "user: What is six times seven?", "reasoning: Six times seven.", "assistant: It is 42.",
    ]);
  },

  // The model calls add {"a":2,"b":3}, its arguments in pieces; the tool answers 5;
  // the model says "2 + 3 = 5."
  async tool(session) {
    const events = await session.ask("Add 2 and 3");
    assertSuccess(events);
    const [call, ...more] = of(events, "TOOL_CALL_START");
    assert.deepEqual(more, [], "one call");
    assert.ok(deltas(events, "TOOL_CALL_ARGS").length > 1, `arguments in pieces, got ${kinds(events)}`);
    assertOrder(events, ["TOOL_CALL_START"], ["TOOL_CALL_ARGS"], ["TOOL_CALL_END"], ["TOOL_CALL_RESULT"], ["TEXT_MESSAGE_START"]);
    assertHas(of(events, "TOOL_CALL_RESULT")[0], { toolCallId: call.toolCallId, content: "5" }, "the result");
    assert.deepEqual(session.told, [
      "user: Add 2 and 3", 'assistant: add({"a":2,"b":3})', "tool: 5", "assistant: 2 + 3 = 5.",
    ]);
  },

  // In one turn the model calls weather {"city":"Oslo"} and weather {"city":"Rome"}; the tool
  // answers rain and sun, in any order; the model says "Oslo: rain. Rome: sun."
  async parallel(session) {
    const events = await session.ask("How is the weather in Oslo and Rome?");
    assertSuccess(events);
    assertOrder(events, ["TOOL_CALL_END"], ["TOOL_CALL_RESULT"], ["TEXT_MESSAGE_START"]);
    const firstResult = events.findIndex(({ type }) => type === "TOOL_CALL_RESULT");
    assert.equal(of(events.slice(0, firstResult), "TOOL_CALL_END").length, 2, `both calls before a result, got ${kinds(events)}`);
    const asking = session.agent.messages.find(({ toolCalls }) => toolCalls);
    assert.equal(asking.toolCalls.length, 2, "both calls belong to one message");
    const answers = asking.toolCalls.map(({ id, function: f }) => {
      const { content } = session.agent.messages.find(({ toolCallId }) => toolCallId === id);
      return `${canonical(f.arguments)} ${content}`;
    });
    assert.deepEqual(answers, ['{"city":"Oslo"} rain', '{"city":"Rome"} sun']);
    assert.equal(session.told.at(-1), "assistant: Oslo: rain. Rome: sun.");
    assert.equal(session.told.length, 5);
  },

  // The state is told once, then the tool `increment` {} adds one to `count`, in two turns, and the
  // model says "The count is <count>." The client's state goes back with the next run.
  async state(session) {
    for (const count of [3, 5]) {
      const events = await session.ask("Count on twice");
      assertSuccess(events);
      assertOrder(events, ["STATE_SNAPSHOT", ({ snapshot }) => snapshot.count === count - 2], ["STATE_DELTA"]);
      assert.equal(of(events, "STATE_DELTA").length, 2, `a delta for each change, got ${kinds(events)}`);
      assert.deepEqual(session.agent.state, { count });
      assert.equal(session.told.at(-1), `assistant: The count is ${count}.`);
    }
  },

  // The tool `set` {"key":..} sets that key of the state to 1, in three turns: `count`, `__proto__`,
  // `more`. The client has all of them.
  async keys(session) {
    const events = await session.ask("Set them");
    assertSuccess(events);
    assert.equal(of(events, "STATE_DELTA").length, 1, "deltas as long as the client takes them");
    const { state } = session.agent;
    assert.deepEqual(Object.keys(state).toSorted(), ["__proto__", "count", "more"]);
    assert.equal(Object.getPrototypeOf(state), Object.prototype, "no prototype is reached");
  },

  // The tool `break` fails. The client's message of its answer says so.
  async failed(session) {
    assertSuccess(await session.ask("Break it"));
    const answer = session.agent.messages.find(({ role }) => role === "tool");
    assert.equal(answer.metadata?.isError, true, JSON.stringify(answer));
  },

  // The model calls the client's own tool pick_color {"prompt":"Pick a colour"}; the run ends with
  // the call pending. Given the answer as a tool message it says "You picked <answer>."
  async client_tool(session) {
    const tools = [{
      name: "pick_color",
      description: "Lets the user pick a colour.",
      parameters: { type: "object", properties: { prompt: { type: "string" } }, required: ["prompt"] },
    }];
    const events = await session.ask("Help me pick a colour", { tools });
    assertSuccess(events);
    assert.deepEqual(of(events, "TOOL_CALL_RESULT", "TEXT_MESSAGE_START"), [], "nothing answers for the client");
    const [call] = of(events, "TOOL_CALL_START");
    assert.deepEqual(session.pendingToolCallIds, [call.toolCallId]);
    session.agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.toolCallId, content: "#2a9d8f" });
    const rest = await session.run({ tools });
    assertSuccess(rest);
    assert.deepEqual(of(rest, "TOOL_CALL_START"), [], "the call is not made again");
    assert.deepEqual(session.told, [
      "user: Help me pick a colour", 'assistant: pick_color({"prompt":"Pick a colour"})', "tool: #2a9d8f",
      "assistant: You picked #2a9d8f.",
    ]);
  },

  // The model calls delete_file {"path":"notes.txt"}, which needs an approval; approved, the tool
  // answers "deleted <path>"; rejected, the result tells the model the reason. Then the model says
  // "The tool said: <result>".
  async approval(session, url) {
    await approve(session, { approved: true }, (result) => assert.equal(result, "deleted notes.txt"));
    await approve(new Session(url), { approved: false, reason: "keep it" }, (result) => {
      assert.match(result, /keep it/);
      assert.doesNotMatch(result, /deleted/);
    });
    await approve(new Session(url), { approved: true, editedArgs: { path: "old.txt" } },
      (result) => assert.match(result, /^deleted old\.txt.*old\.txt/s));
  },

  // Of three members side by side, left and right call act {"of":<name>}, which needs an approval, and
  // middle says "middle". Approved, act answers "<name> acted", and the member says "<name>: <result>".
  async team(session) {
    await approveMembers(session, ["left", "right"]);
    await approveMembers(session, ["right", "left"]);
  },

  // The model calls middle {"request":"Act!"}, an agent, which calls leaf, an agent, which calls act
  // {"of":"leaf"}, which needs an approval. Each says who it is and what it was told.
  async inner(session) {
    const events = await session.ask("Act");
    const begun = of(events, "TOOL_CALL_START");
    assert.deepEqual(begun.map(({ toolCallName }) => toolCallName), ["middle", "leaf", "act"]);
    const [{ id: interruptId, toolCallId }] = session.agent.pendingInterrupts;
    assert.equal(toolCallId, begun.at(-1).toolCallId, "the call that waits is that of the leaf");
    const rest = await session.run({ resume: [{ interruptId, status: "resolved", payload: { approved: true } }] });
    assertSuccess(rest);
    assert.deepEqual(of(rest, "TOOL_CALL_START"), [], "no call is told again");
    const results = of(rest, "TOOL_CALL_RESULT").map(({ toolCallId, content }) => [toolCallId, content]);
    assert.deepEqual(results, [
      [begun[2].toolCallId, "leaf acted"],
      [begun[1].toolCallId, "leaf: leaf acted"],
      [begun[0].toolCallId, "middle: leaf: leaf acted"],
    ]);
    assert.equal(session.told.at(-1), "assistant: top: middle: leaf: leaf acted");
  },

  // The model fails for good.
  async error(session) {
    const { message, code } = (await session.ask("Fail")).at(-1);
    assert.ok(message, "RUN_ERROR says what happened");
    assert.notEqual(code, "stop_agent_error", "a failure is not an abort");
  },

  // The model calls delete_everything {}, and a callback aborts the run before the tool is called.
  async abort(session) {
    const events = await session.ask("Delete everything");
    assertHas(events.at(-1), { type: "RUN_ERROR", code: "stop_agent_error" }, "the last event");
    // The call is answered all the same: a conversation with an open call could not go on.
    for (const { metadata, content } of of(events, "TOOL_CALL_RESULT")) {
      assert.equal(metadata?.isError, true, "the tool is not called");
      assert.match(content, /^Something went wrong on the server \(error .+\)\.$/);
    }
  },

  // The model streams "Half an ans" and fails; asked once more it says "The whole answer."
  async retry(session) {
    const events = await session.ask("Answer me");
    assertSuccess(events);
    assert.match(deltas(events, "TEXT_MESSAGE_CONTENT").join(""), /^Half an ans.*The whole answer\.$/);
    assert.deepEqual(session.told, ["user: Answer me", "assistant: The whole answer."]);
  },

  // The model streams "The secret is 1234."; an after_model callback replaces its answer with
  // "The secret is [removed]."
  async replace(session) {
    const events = await session.ask("Tell me the secret");
    assertSuccess(events);
    assert.match(deltas(events, "TEXT_MESSAGE_CONTENT").join(""), /^The secret is 1234\./);
    assert.deepEqual(session.told, ["user: Tell me the secret", "assistant: The secret is [removed]."]);
  },

  // The model streams "Once upon a time" and goes on without end, until nobody listens.
  async slow(session) {
    let seen = "";
    let duringRun;
    const events = await session.ask("Tell me a story", {}, (event, { agent }) => {
      if (event.type !== "TEXT_MESSAGE_CONTENT" || duringRun) return;
      seen += event.delta;
      if (!seen.startsWith("Once upon a time")) return;
      duringRun = active().finally(() => agent.abortRun());
    });
    assert.equal(await duringRun, 1, "runs under way while the story is told");
    // The client ends its own record with an error of this code; the server saw a closed connection.
    assertHas(events.at(-1), { type: "RUN_ERROR", code: "abort" }, "the client's last event");
    await until("the server stops a run that nobody listens to", 2000, async () => (await active()) === 0);
  },
};

/** Scenarios of several devices, on a server that keeps threads. */
const stored = {
  // The model says "You said: <the latest words of the user>".
  async devices(laptop, url) {
    assertSuccess(await laptop.ask("one"));
    const phone = new Device(url, laptop.agent.threadId);
    await phone.open();
    assert.deepEqual(phone.agent.messages.map(({ id }) => id), laptop.agent.messages.map(({ id }) => id));
    assert.deepEqual(phone.told, laptop.told);
    assertSuccess(await phone.ask("two"));
    assertSuccess(await laptop.ask("three"));
    assertSuccess(await phone.ask("four"));
    const all = ["one", "two", "three", "four"].flatMap((text) => [`user: ${text}`, `assistant: You said: ${text}`]);
    // What it has missed shows that nobody is waited for.
    assert.deepEqual(phone.told.filter((line) => !line.startsWith("activity")), all);
    assertSuccess(await laptop.ask("five"));
    assert.deepEqual(laptop.told.filter((line) => !line.startsWith("activity")).slice(0, 8), all);
    const stranger = new Device(url, "another thread");
    await assert.rejects(stranger.open(), ({ status }) => status === 404);
    takeComplaints();
  },

  // As in the scenario of this name: the question is read and answered on another device.
  async inner(laptop, url) {
    const alone = new Session(url);
    const answer = ({ agent }) => {
      const [{ id: interruptId }] = agent.pendingInterrupts;
      return { resume: [{ interruptId, status: "resolved", payload: { approved: true } }] };
    };
    await alone.ask("Act");
    assertSuccess(await alone.run(answer(alone)));

    await laptop.ask("Act");
    const phone = new Device(url, laptop.agent.threadId);
    await phone.open();
    assert.deepEqual(phone.agent.pendingInterrupts, laptop.agent.pendingInterrupts);
    assert.deepEqual(phone.told, laptop.told);
    assertSuccess(await phone.run(answer(phone)));
    assert.deepEqual(phone.told.toSorted(), alone.told.toSorted());
    const reloaded = new Device(url, laptop.agent.threadId);
    await reloaded.open();
    assert.deepEqual(reloaded.told.toSorted(), alone.told.toSorted());
  },
};

async function approve(session, payload, checkResult) {
  const events = await session.ask("Delete notes.txt");
  const [call] = of(events, "TOOL_CALL_START");
  const { outcome } = events.at(-1);
  assert.equal(outcome?.type, "interrupt", `how the run ended: ${JSON.stringify(events.at(-1))}`);
  assert.equal(outcome.interrupts.length, 1);
  assertHas(outcome.interrupts[0], { toolCallId: call.toolCallId, reason: "tool_call" }, "the interrupt");
  const asked = events.slice(events.findIndex(({ type }) => type === "TOOL_CALL_END"));
  assertOrder(asked, ["STATE_SNAPSHOT"], ["RUN_FINISHED"]);
  assertOrder(asked, ["MESSAGES_SNAPSHOT"], ["RUN_FINISHED"]);
  assert.deepEqual(of(events, "TOOL_CALL_RESULT"), [], "no result before the approval");

  const interruptId = session.agent.pendingInterrupts[0].id;
  const rest = await session.run({ resume: [{ interruptId, status: "resolved", payload }] });
  assertSuccess(rest);
  assert.deepEqual(session.agent.pendingInterrupts, [], "nothing is waited for any more");
  assert.deepEqual(of(rest, "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"), [], "the call is not told again");
  const [result] = of(rest, "TOOL_CALL_RESULT");
  assert.equal(result?.toolCallId, call.toolCallId, "the result answers the old call");
  checkResult(result.content);
  assert.deepEqual(session.agent.messages.map(({ role }) => role), ["user", "assistant", "tool", "assistant"]);
  assert.equal(session.told.at(-1), `assistant: The tool said: ${result.content}`);
}

/** One turn of the team, with the approvals of its members in this order. */
async function approveMembers(session, names) {
  const before = session.agent.messages.length;
  const events = await session.ask("Act");
  const calls = new Map(session.agent.messages.flatMap((message) => message.toolCalls ?? [])
    .filter(({ id }) => of(events, "TOOL_CALL_START").some(({ toolCallId }) => toolCallId === id))
    .map(({ id, function: f }) => [JSON.parse(f.arguments).of, id]));
  assert.deepEqual([...calls.keys()].toSorted(), ["left", "right"], "both calls are on the page");

  const resume = names.map((name) => {
    const { id } = session.agent.pendingInterrupts.find(({ toolCallId }) => toolCallId === calls.get(name));
    return { interruptId: id, status: "resolved", payload: { approved: true } };
  });
  const rest = await session.run({ resume });
  assertSuccess(rest);
  assert.deepEqual(of(rest, "TOOL_CALL_START"), [], "no call is told again");
  const results = of(rest, "TOOL_CALL_RESULT").map(({ toolCallId, content }) => [toolCallId, content]);
  assert.deepEqual(results.toSorted(), names.map((name) => [calls.get(name), `${name} acted`]).toSorted());
  const members = names.flatMap((name) => [
    `assistant: act({"of":"${name}"})`, `tool: ${name} acted`, `assistant: ${name}: ${name} acted`,
  ]);
  assert.deepEqual(session.told.slice(before).toSorted(), ["user: Act", "assistant: middle", ...members].toSorted());
}

/** Bodies that are no RunAgentInput; each is refused with a 4xx and JSON that says why. */
const refusals = {
  malformed: () => '{"threadId":',
  nested: (body) => JSON.stringify(body).replace('"state":{}', `"state":${"[".repeat(100_000)}${"]".repeat(100_000)}`),
  messages_of_a_wrong_type: (body) => JSON.stringify({ ...body, messages: "none" }),
  unknown_role: (body) => JSON.stringify({ ...body, messages: [{ id: "1", role: "wizard", content: "" }] }),
  no_thread: ({ threadId, ...body }) => JSON.stringify(body),
};

async function refuse(url, spoil) {
  const session = new Session(url, {
    state: {},
    fetch: (to, request) => fetch(to, { ...request, body: spoil(JSON.parse(request.body)) }),
  });
  const error = await session.ask("Hello").then((events) => assert.fail(`it ran: ${kinds(events)}`), (error) => error);
  assert.match(takeComplaints().join("\n"), /^error: Agent execution failed/, "the client tells its user");
  checkRefusal(error.status, error.payload, error);
}

function checkRefusal(status, payload, cause) {
  assert.ok(status >= 400 && status < 500, `status ${status}: ${cause?.stack ?? ""}`);
  const message = payload?.error?.message;
  assert.ok(typeof message === "string" && message, `{"error":{"message":..}}, got ${JSON.stringify(payload)}`);
}

/** Too large a body, sent by hand: the answer comes before all of it is written. */
async function refuseTooLarge(url) {
  const [status, text] = await new Promise((resolve, reject) => {
    const request = http.request(url, { method: "POST", headers: {
      "content-type": "application/json", "content-length": 8 << 20, expect: "100-continue",
    } });
    request.on("continue", () => {
      const chunk = Buffer.alloc(1 << 16, " ");
      let left = 8 << 20;
      const write = () => {
        while (left > 0 && !request.destroyed) {
          left -= chunk.length;
          if (!request.write(chunk)) return request.once("drain", write);
        }
        request.end();
      };
      write();
    });
    request.on("response", async (response) => {
      let body = "";
      for await (const piece of response.setEncoding("utf8")) body += piece;
      request.destroy();
      resolve([response.statusCode, body]);
    });
    request.on("error", reject);
    request.flushHeaders();
  });
  assert.equal(status, 413);
  checkRefusal(status, JSON.parse(text));
}

async function check(name, scenario) {
  const begin = performance.now();
  takeComplaints();
  const watchdog = setTimeout(() => {
    console.log(`FAIL ${name}: not over after ${PATIENCE} ms`);
    process.exit(1);
  }, PATIENCE);
  try {
    await scenario();
    assert.deepEqual(takeComplaints(), [], "the client has nothing to complain of");
    await until("every run is over", 2000, async () => (await active()) === 0);
  } catch (error) {
    console.log(`FAIL ${name}: ${error.message}`);
    for (const complaint of takeComplaints()) console.log(`  the client says: ${complaint}`);
    console.log(error.stack.split("\n").filter((line) => /^\s+at .*\.mjs/.test(line)).join("\n"));
    process.exit(1);
  }
  clearTimeout(watchdog);
  console.log(`ok   ${name} (${Math.round(performance.now() - begin)} ms)`);
}

for (const preset of chosen.length ? chosen : PRESETS) {
  for (const [name, scenario] of Object.entries(scenarios)) {
    const url = `${root}/scenarios/${preset}/${name}`;
    await check(`${preset} ${name}`, () => scenario(new Session(url, { state: name === "state" ? { count: 1 } : {} }), url));
  }
}
if (!chosen.length) {
  for (const [name, scenario] of Object.entries(stored)) {
    const url = `${root}/scenarios/default/${name}`;
    await check(`stored ${name}`, () => scenario(new Session(url), url));
  }
}
const url = `${root}/scenarios/default/plain`;
for (const [name, spoil] of Object.entries(refusals)) await check(`refused ${name}`, () => refuse(url, spoil));
await check("refused too_large", () => refuseTooLarge(url));
