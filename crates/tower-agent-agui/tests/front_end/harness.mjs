// What every scenario needs: one user talking to one scenario of the server through the official
// client, with every event recorded and the rules that hold for all runs checked.

import assert from "node:assert/strict";
import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

/** What the client complained of since the last look: it warns where it repairs or ignores. */
const complaints = [];
console.warn = (...words) => complaints.push(`warning: ${words.join(" ")}`);
console.error = (...words) => complaints.push(`error: ${words.join(" ")}`);

export const takeComplaints = () => complaints.splice(0);

export class Session {
  constructor(url, { state, fetch: send = fetch } = {}) {
    this.agent = new HttpAgent({
      url,
      initialState: state,
      fetch: async (...request) => {
        this.response = await send(...request);
        return this.response;
      },
    });
  }

  /** Adds what the user says and runs. */
  ask(text, parameters, watch) {
    this.agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
    return this.run(parameters, watch);
  }

  /** One run; answers with its events after checking what holds for every run. */
  async run(parameters = {}, watch = () => {}) {
    const runId = crypto.randomUUID();
    const events = [];
    let finished;
    await this.agent.runAgent({ runId, ...parameters }, {
      onEvent: ({ event }) => {
        events.push(event);
        watch(event, this);
      },
      onRunFinishedEvent: (ending) => {
        finished = ending;
      },
    });
    this.pendingToolCallIds = finished?.pendingToolCallIds ?? [];
    this.checkRun(events, runId);
    return events;
  }

  checkRun(events, runId) {
    assert.match(this.response.headers.get("content-type"), /^text\/event-stream\b/);
    const [first, last] = [events.at(0), events.at(-1)];
    const terminals = events.filter(({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR");
    assert.equal(first?.type, "RUN_STARTED", "the first event");
    assert.equal(terminals.length, 1, `one terminal event, got ${kinds(events)}`);
    assert.equal(last, terminals[0], `nothing after the terminal event, got ${kinds(events)}`);
    const ids = { threadId: this.agent.threadId, runId };
    assertHas(first, ids, "RUN_STARTED");
    if (last.type === "RUN_FINISHED") assertHas(last, ids, "RUN_FINISHED");

    const calls = this.agent.messages.flatMap((message) => message.toolCalls ?? []).map(({ id }) => id);
    for (const { toolCallId } of of(events, "TOOL_CALL_RESULT")) {
      assert.ok(calls.includes(toolCallId), `a result names the unknown call ${toolCallId}`);
    }
    const messages = this.agent.messages.map(({ id }) => id);
    assert.equal(new Set(messages).size, messages.length, `messages share an id: ${messages}`);
  }

  /** The conversation in short: what a reader of it would see. */
  get told() {
    return this.agent.messages.map(({ role, content, toolCalls }) => {
      const calls = (toolCalls ?? []).map(({ function: f }) => `${f.name}(${canonical(f.arguments)})`);
      return [`${role}:`, ...(content ? [content] : []), ...calls].join(" ");
    });
  }
}

/** Another device: it reads the thread before it goes on with it. */
export class Device extends Session {
  constructor(url, threadId) {
    super(url);
    this.agent.threadId = threadId;
    this.agent.connect = (input) => {
      const address = `${url}?${new URLSearchParams({ threadId: input.threadId })}`;
      return transformHttpEventStream(runHttpRequest(() => fetch(address)));
    };
  }

  async open() {
    const kinds = [];
    await this.agent.connectAgent({}, { onEvent: ({ event }) => { kinds.push(event.type); } });
    assert.equal(kinds.at(-1), "RUN_FINISHED", `how the thread ends: ${kinds}`);
  }
}

export const of = (events, ...types) => events.filter(({ type }) => types.includes(type));
export const kinds = (events) => events.map(({ type }) => type).join(" ");
export const deltas = (events, type) => of(events, type).map(({ delta }) => delta);

/** JSON text without its spacing: servers may write `{"a": 2}` or `{"a":2}`. */
export const canonical = (text) => JSON.stringify(JSON.parse(text || "{}"));

export function assertHas(actual, expected, what) {
  for (const [name, value] of Object.entries(expected)) assert.deepEqual(actual[name], value, `${what}.${name}`);
}

/** The run ended well: `RUN_FINISHED` with the outcome success, said or left out. */
export function assertSuccess(events) {
  const last = events.at(-1);
  assert.equal(last.type, "RUN_FINISHED", `how the run ended: ${JSON.stringify(last)}`);
  assert.ok((last.outcome?.type ?? "success") === "success", `outcome: ${JSON.stringify(last.outcome)}`);
}

export function assertOrder(events, ...steps) {
  const places = steps.map(([type, test = () => true]) => events.findIndex((event) => event.type === type && test(event)));
  assert.ok(!places.includes(-1), `${steps.map(([type]) => type)} all happen, got ${kinds(events)}`);
  assert.deepEqual(places, places.toSorted((a, b) => a - b), `${steps.map(([type]) => type)} in this order, got ${kinds(events)}`);
}

/** Looks until `test` answers with something, for at most `ms`. */
export async function until(what, ms, test) {
  const deadline = performance.now() + ms;
  for (;;) {
    const seen = await test();
    if (seen) return seen;
    assert.ok(performance.now() < deadline, `${what}: not within ${ms} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
