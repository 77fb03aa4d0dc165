// Drives a server with CopilotKit's core: node copilotkit.mjs example|kinds URL
//
// With `example` it is the address of the example server's agent. With `kinds` it is that of several agents, by their
// names: `inner` and `team` are those of client.mjs; `twice` calls act {"of":"it"}, which asks "How?" as
// `input_required` after its approval, and then says the answer as JSON; `kinds` makes four calls in each turn: act {"of":"it"}, which needs an approval; size {}, which asks "How large?" as `input_required`; sure {},
// which asks "Really?" as `tool_call`; and pick_color {..}, the page's own tool. The model then says the results in this
// order, with commas between them. The tools that ask return the answer as JSON, or "cancelled".
//
// Errors of the core and of its client are complaints, and a scenario says which it expects.

import assert from "node:assert/strict";
import { HttpAgent, randomUUID, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";
import { CopilotKitCore, ɵInterruptState as InterruptState } from "@copilotkit/core";
import { z } from "zod";

const PATIENCE = 20_000;

const [what, url] = process.argv.slice(2);

/** What somebody reads in the console beside the errors that CopilotKit reports itself. */
console.error = () => {};
console.warn = () => {};

/** CopilotKit leaves it to the agent how a thread is read; this is as our documentation has it. */
class Agent extends HttpAgent {
  connect({ threadId }) {
    const address = `${this.url}?${new URLSearchParams({ threadId })}`;
    return transformHttpEventStream(runHttpRequest(() => fetch(address, { headers: this.headers })));
  }
}

/** A page with CopilotKit in it. Its own tool answers with `color`. */
class Page {
  constructor({ agent = "kinds", threadId = randomUUID(), tools } = {}) {
    this.agent = new Agent({ url: what === "kinds" ? `${url}/${agent}` : url, threadId });
    this.errors = [];
    this.color = "teal";
    const pick = {
      name: "pick_color",
      description: "Lets the user pick a colour.",
      parameters: z.object({ prompt: z.string() }),
      handler: async () => this.color,
    };
    this.core = new CopilotKitCore({ agents__unsafe_dev_only: { default: this.agent }, tools: tools ?? [pick] });
    this.core.subscribe({ onError: ({ error }) => { this.errors.push(error); } });
    this.state = new InterruptState();
    this.runs = new Map();
    let asked = [];
    // As the hook `useInterrupt` does.
    this.agent.subscribe({
      onRunStartedEvent: () => {
        asked = [];
        this.runs.clear();
        this.state.clear();
      },
      onRunFinishedEvent: ({ outcome, interrupts, input }) => {
        if (outcome !== "interrupt") return;
        asked = interrupts;
        for (const { id } of interrupts) this.runs.set(id, input.runId);
      },
      onRunFinalized: () => {
        if (asked.length) this.state.setStandard(asked);
      },
    });
  }

  get questions() {
    return this.agent.pendingInterrupts;
  }

  /** The conversation in short. */
  get told() {
    return this.agent.messages.filter(({ content }) => content).map(({ role, content }) => `${role}: ${content}`);
  }

  get last() {
    return this.told.at(-1);
  }

  ask(text) {
    this.agent.addMessage({ id: randomUUID(), role: "user", content: text });
    return this.core.runAgent({ agent: this.agent });
  }

  /** Reads the thread, as a reload or another device does. */
  read() {
    return this.core.connectAgent({ agent: this.agent });
  }

  /**
   * Answers as `useInterrupt` does, when the last question has its answer: with `resume`, and with a tool message for
   * each question about a call. `change` may make another input of it.
   */
  async answer(decision, change = (messages) => messages) {
    if (decision.kind !== "resume") return decision.kind;
    const runId = decision.resume.map(({ interruptId }) => this.runs.get(interruptId)).find((run) => run);
    const messages = decision.toolResults.map(({ toolCallId, content }) => (
      { id: randomUUID(), role: "tool", toolCallId, content }
    ));
    for (const message of change(messages)) this.agent.addMessage(message);
    await this.core.runAgent({ agent: this.agent, resume: decision.resume, ...(runId ? { runId } : {}) });
    return decision.kind;
  }

  resolve(payload, id, change) {
    return this.answer(this.state.resolve(payload, id), change);
  }

  cancel(id) {
    return this.answer(this.state.cancel(id));
  }

  isContent() {
    assert.deepEqual(this.errors.map(({ message }) => message), []);
  }

  /** The core has reported exactly one error, which says this. */
  wasRefused(status, words) {
    const [error, ...more] = new Set(this.errors.splice(0).map(({ message }) => message));
    assert.deepEqual(more, []);
    assert.match(error ?? "no error", new RegExp(`^HTTP ${status}: .*${words}`, "s"));
  }
}

/** The question whether to delete a file, on a page of its own. */
async function asked(path = "notes.txt") {
  const page = new Page();
  await page.ask(`Delete ${path}`);
  assert.equal(page.questions.length, 1);
  assert.equal(page.questions[0].reason, "tool_call");
  return page;
}

/** The conversation goes on, with whatever message the page has kept. */
async function goesOn(page) {
  await page.ask("Pick a colour");
  page.isContent();
  assert.equal(page.last, "assistant: teal it is. A fine choice.");
  page.isContent();
}

const example = {
  async "a question is approved"() {
    const page = await asked();
    assert.equal(await page.resolve({ approved: true }), "resume");
    page.isContent();
    assert.equal(page.last, "assistant: Done: notes.txt is deleted.");
    assert.deepEqual(page.questions, []);
    assert.ok(!page.agent.state.files.includes("notes.txt"));
    await goesOn(page);
  },

  async "a question is rejected with a reason"() {
    const page = await asked();
    await page.resolve({ approved: false, reason: "keep it" });
    assert.match(page.last, /^assistant: I deleted nothing: .*keep it/);
    assert.ok(page.agent.state.files.includes("notes.txt"));
    await goesOn(page);
  },

  async "a question is cancelled"() {
    const page = await asked();
    await page.cancel();
    assert.match(page.last, /^assistant: I deleted nothing/);
    assert.ok(page.agent.state.files.includes("notes.txt"));
    await goesOn(page);
  },

  async "the arguments are edited"() {
    const page = await asked();
    await page.resolve({ approved: true, editedArgs: { path: "old.txt" } });
    assert.match(page.last, /^assistant: Done: old\.txt is deleted/);
    await goesOn(page);
  },

  async "two questions are asked one after the other"() {
    const page = await asked();
    await page.resolve({ approved: true });
    await page.ask("Delete plan.md");
    await page.resolve({ approved: false });
    await page.ask("Delete old.txt");
    await page.resolve({ approved: true });
    assert.deepEqual(page.agent.state.files, ["plan.md"]);
    await goesOn(page);
  },

  async "the page's own tool is called three times"() {
    const page = new Page();
    for (const color of ["teal", "red", "teal"]) {
      page.color = color;
      await page.ask("Pick a colour");
      assert.equal(page.last, `assistant: ${color} it is. A fine choice.`);
    }
    page.isContent();
  },

  async "a page is reloaded while a question is open"() {
    const before = await asked();
    const page = new Page({ threadId: before.agent.threadId });
    await page.read();
    assert.deepEqual(page.questions.map(({ id }) => id), before.questions.map(({ id }) => id));
    await page.resolve({ approved: true });
    assert.equal(page.last, "assistant: Done: notes.txt is deleted.");
    await goesOn(page);
    const again = new Page({ threadId: page.agent.threadId });
    await again.read();
    // Its own message of the answer is the page's alone.
    const answers = page.told.filter((line) => !line.includes("approved"));
    assert.deepEqual(again.told, answers);
    again.isContent();
  },

  async "a second device goes on and answers"() {
    const laptop = await asked();
    const phone = new Page({ threadId: laptop.agent.threadId });
    await phone.read();
    await phone.resolve({ approved: true });
    assert.equal(phone.last, "assistant: Done: notes.txt is deleted.");
    phone.isContent();
    // The first one does not know, answers as well, and is told.
    await laptop.resolve({ approved: true });
    laptop.wasRefused(409, "not open");
    // Its client does not let it go on before it has answered in some way.
    laptop.state.setStandard(laptop.questions);
    await laptop.cancel();
    assert.ok(laptop.told.includes("assistant: Done: notes.txt is deleted."), "it is told what it has missed");
    await goesOn(laptop);
    const reloaded = new Page({ threadId: laptop.agent.threadId });
    await reloaded.read();
    await goesOn(reloaded);
  },

  async "an answer that is refused can be given anew"() {
    const page = await asked();
    await page.resolve({ approved: true, editedArgs: "all" });
    page.wasRefused(422, "does not fit");
    // The page keeps the message; the hook asks anew.
    page.state.setStandard(page.questions);
    await page.resolve({ approved: true });
    assert.equal(page.last, "assistant: Done: notes.txt is deleted.");
    await goesOn(page);
  },

  async "a message that contradicts the answer is refused, and the next one is not"() {
    const page = await asked();
    const lies = (messages) => messages.map((message) => ({ ...message, content: '"notes.txt is deleted"' }));
    await page.resolve({ approved: false }, undefined, lies);
    page.wasRefused(422, "says something else than the answer");
    assert.ok(page.agent.state.files.includes("notes.txt"));
    page.state.setStandard(page.questions);
    await page.cancel();
    assert.match(page.last, /^assistant: I deleted nothing/);
    await goesOn(page);
  },

  async "a page's tool with the name of the server's is refused by name"() {
    const own = { name: "delete_file", description: "Mine.", parameters: z.object({}), handler: async () => "mine" };
    const page = new Page({ tools: [own] });
    await page.ask("Delete notes.txt");
    page.wasRefused(422, "the server has a tool named `delete_file`: give the client's tool another name");
    page.core.removeTool("delete_file");
    await page.core.runAgent({ agent: page.agent });
    await page.resolve({ approved: true });
    assert.equal(page.last, "assistant: Done: notes.txt is deleted.");
    page.isContent();
  },
};

/** Asks every kind of question at once. The page's own tool has run, and its result waits. */
async function everything(page = new Page()) {
  await page.ask("Do all");
  // CopilotKit goes on at once with the result of the page's tool, which its own client does not let it.
  const [error, ...more] = page.errors.splice(0);
  assert.match(error.message, /^Thread has 3 pending interrupt/);
  assert.deepEqual(more.filter(({ message }) => message !== error.message), []);
  page.state.setStandard(page.questions);
  const calls = page.agent.messages.flatMap(({ toolCalls }) => toolCalls ?? []);
  const idOf = (tool) => page.questions.find(({ toolCallId }) => (
    calls.some((call) => call.id === toolCallId && call.function.name === tool)
  )).id;
  return { page, approval: idOf("act"), size: idOf("size"), sure: idOf("sure") };
}

const kinds = {
  async "every kind of question is answered at once"() {
    const { page, approval, size, sure } = await everything();
    assert.equal(await page.resolve({ approved: true }, approval), "waiting");
    assert.equal(await page.resolve("large", size), "waiting");
    assert.equal(await page.resolve("yes, \"really\"", sure), "resume");
    page.isContent();
    assert.equal(page.last, 'assistant: it acted, "large", "yes, \\"really\\"", teal');
    await everything(page);
  },

  async "every kind of question is cancelled"() {
    const { page, approval, size, sure } = await everything();
    for (const id of [sure, approval, size]) await page.cancel(id);
    page.isContent();
    assert.match(page.last, /cancelled, cancelled, teal$/);
    await everything(page);
  },

  async "an answer without a word is one"() {
    const { page, approval, size, sure } = await everything();
    await page.resolve({ approved: true }, approval);
    await page.resolve("", size);
    await page.resolve(undefined, sure);
    page.isContent();
    assert.equal(page.last, 'assistant: it acted, "", null, teal');
  },

  // As the versions before this one did, whatever the reason of the question.
  async "a message repeats every answer"() {
    const { page, approval, size, sure } = await everything();
    const call = page.questions.find(({ id }) => id === size).toolCallId;
    const all = (messages) => [{ id: randomUUID(), role: "tool", toolCallId: call, content: '"small"' }, ...messages];
    await page.resolve({ approved: true }, approval);
    await page.resolve("small", size);
    await page.resolve({ a: [1, 2.5, null] }, sure, all);
    page.isContent();
    assert.equal(page.last, 'assistant: it acted, "small", {"a":[1,2.5,null]}, teal');
  },

  async "one of the messages contradicts its answer"() {
    const { page, approval, size, sure } = await everything();
    const call = page.questions.find(({ id }) => id === sure).toolCallId;
    const lie = (messages) => messages.map((message) => (
      message.toolCallId === call ? { ...message, content: '"no"' } : message
    ));
    await page.resolve({ approved: true }, approval);
    await page.resolve("small", size);
    await page.resolve("yes", sure, lie);
    page.wasRefused(422, "says something else than the answer");
    page.state.setStandard(page.questions);
    await page.resolve({ approved: true }, approval);
    await page.resolve("small", size);
    await page.resolve("yes", sure);
    page.isContent();
    assert.equal(page.last, 'assistant: it acted, "small", "yes", teal');
  },

  async "a call that asks twice is answered twice"() {
    for (const payload of ["carefully", undefined]) {
      const page = new Page({ agent: "twice" });
      await page.ask("Act");
      await page.resolve({ approved: true });
      assert.equal(page.questions[0].message, "How?");
      await page.resolve(payload);
      page.isContent();
      assert.equal(page.last, `assistant: ${JSON.stringify(payload ?? null)}`);
      await page.ask("Again");
      await page.resolve({ approved: true });
      await page.cancel();
      page.isContent();
      assert.equal(page.last, "assistant: cancelled");
    }
  },

  async "an inner agent's call is approved"() {
    const page = new Page({ agent: "inner" });
    for (const _ of [1, 2]) {
      await page.ask("Act");
      await page.resolve({ approved: true });
      page.isContent();
      assert.equal(page.last, "assistant: top: middle: leaf: leaf acted");
    }
  },

  async "the calls of two members are approved"() {
    const page = new Page({ agent: "team" });
    for (const _ of [1, 2]) {
      await page.ask("Act");
      const [one, two] = page.questions;
      await page.resolve({ approved: true }, two.id);
      await page.resolve({ approved: true }, one.id);
      page.isContent();
      const told = page.told.slice(-4).toSorted();
      assert.ok(told.includes("assistant: left: left acted") && told.includes("assistant: right: right acted"), told);
    }
  },

  async "a page that is reloaded answers every kind of question"() {
    const before = await everything();
    const page = new Page({ threadId: before.page.agent.threadId });
    await page.read();
    assert.equal(page.questions.length, 3);
    const pick = page.agent.messages.flatMap(({ toolCalls }) => toolCalls ?? [])
      .find(({ function: { name } }) => name === "pick_color");
    page.agent.addMessage({ id: randomUUID(), role: "tool", toolCallId: pick.id, content: "red" });
    await page.resolve({ approved: false, reason: "no" }, before.approval);
    await page.resolve("large", before.size);
    await page.resolve(true, before.sure);
    page.isContent();
    assert.match(page.last, /no.*, "large", true, red$/s);
  },
};

const scenarios = { example, kinds }[what];
if (!scenarios || !url) {
  console.log("usage: node copilotkit.mjs example|kinds URL");
  process.exit(2);
}
const watched = async ([name, scenario]) => {
  const begin = performance.now();
  const watchdog = setTimeout(() => {
    console.log(`FAIL ${name}: not over after ${PATIENCE} ms`);
    process.exit(1);
  }, PATIENCE);
  try {
    await scenario();
  } catch (error) {
    console.log(`FAIL ${name}: ${error.stack}`);
    process.exit(1);
  }
  clearTimeout(watchdog);
  console.log(`ok   ${name} (${Math.round(performance.now() - begin)} ms)`);
};
// Each has a thread of its own, so that they wait for the stand-in's words together.
await Promise.all(Object.entries(scenarios).map(watched));
process.exit(0);
