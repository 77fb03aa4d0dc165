// What the page makes of events that the example's server may not send.

import assert from "node:assert/strict";
import { calls, finished, has, says } from "./browser.mjs";
import { me } from "./answers.mjs";

const note = (timestamp, hook, decision, more) => ({
  type: "CUSTOM", name: "callback", timestamp,
  value: { callback: "Log", call: "tool", name: "add", agent: "assistant", invocation: "1", hook, decision, ...more },
});

export const steps = {
  async "a snapshot replaces the conversation, a delta changes the state"() {
    await me.newChat();
    await me.canned([
      { type: "REASONING_MESSAGE_START", messageId: "r", role: "reasoning" },
      { type: "REASONING_MESSAGE_CONTENT", messageId: "r", delta: "Hm." },
      { type: "REASONING_MESSAGE_END", messageId: "r" },
      ...says("a", "The secret is 1234."),
      { type: "MESSAGES_SNAPSHOT", messages: [
        { id: "q", role: "user", content: "The secret?" }, { id: "a", role: "assistant", content: "The secret is [removed]." }] },
      { type: "STATE_SNAPSHOT", snapshot: { list: [1, 2], "a/b": { c: 1 }, gone: true, kept: "yes" } },
      { type: "STATE_DELTA", delta: [
        { op: "add", path: "/list/1", value: 9 }, { op: "add", path: "/list/-", value: 3 }, { op: "remove", path: "/gone" },
        { op: "replace", path: "/a~1b/c", value: 2 }, { op: "copy", from: "/a~1b", path: "/copied" },
        { op: "move", from: "/kept", path: "/moved" }, { op: "test", path: "/moved", value: "yes" }] },
      finished,
    ]);
    await me.ask("Tell me", "The secret?");
    await me.status("idle");
    assert.deepEqual(await me.at("message-assistant").locator(".text").allTextContents(), ["The secret is [removed]."]);
    assert.deepEqual(await me.at("message-user").locator(".text").allTextContents(), ["The secret?"]);
    await has(me.at("timeline"), "what was told is replaced");
    assert.equal(await me.at("reasoning").count(), 1, "reasoning that the snapshot does not tell stays");
    assert.deepEqual(JSON.parse(await me.at("state").textContent()),
      { list: [1, 9, 2, 3], "a/b": { c: 2 }, copied: { c: 2 }, moved: "yes" });
  },

  async "a stream is understood however it is cut"() {
    await me.newChat();
    const text = "Größer als 🦀?\n\nJa.";
    await me.page.evaluate((events) => {
      const real = window.fetch;
      window.fetch = async () => {
        window.fetch = real;
        const frames = events.map((event) => `: a comment\n\ndata: ${JSON.stringify(event)}\n\n`).join("");
        const bytes = new TextEncoder().encode(frames);
        let sent = 0;
        return new Response(new ReadableStream({
          pull(stream) {
            if (sent < bytes.length) stream.enqueue(bytes.slice(sent, ++sent));
            else stream.close();
          },
        }), { headers: { "content-type": "text/event-stream" } });
      };
    }, [{ type: "RUN_STARTED" }, ...says("a", text), finished]);
    await me.ask("Cut it small");
    await me.status("idle");
    assert.equal(await me.lastText(), text);
  },

  async "a tool's failure is told by the message or by its metadata"() {
    await me.newChat();
    await me.canned([
      ...calls("c1", "pay", "{}"), ...calls("c2", "pay", "{}"), ...calls("c3", "pay", "{}"),
      { type: "TOOL_CALL_RESULT", messageId: "r1", toolCallId: "c1", content: "no money", metadata: { isError: true } },
      { type: "TOOL_CALL_RESULT", messageId: "r3", toolCallId: "c3", content: "paid" },
      { type: "MESSAGES_SNAPSHOT", messages: [
        { id: "q", role: "user", content: "Pay" },
        { id: "a", role: "assistant", toolCalls: ["c1", "c2", "c3"].map((id) => ({ id, type: "function", function: { name: "pay", arguments: "{}" } })) },
        { id: "r1", role: "tool", toolCallId: "c1", content: "no money", metadata: { isError: true } },
        { id: "r2", role: "tool", toolCallId: "c2", content: "half of it", error: "the bank closed" },
        { id: "r3", role: "tool", toolCallId: "c3", content: "paid" }] },
      finished,
    ]);
    await me.ask("Pay");
    await me.status("idle");
    const shown = await me.at("tool-card").evaluateAll((cards) => cards.map((card) => [card.dataset.phase,
      ...["tool-error", "tool-result"].map((id) => card.querySelector(`[data-testid=${id}]`)).map((pre) => pre.parentElement.hidden ? "-" : pre.textContent)]));
    assert.deepEqual(shown, [["failed", "no money", "-"], ["failed", "the bank closed", "half of it"], ["done", "-", "paid"]]);
  },

  async "calls side by side are not mixed up in the timeline"() {
    await me.newChat();
    await me.canned([
      { type: "RUN_STARTED", timestamp: 1000 },
      note(1000, "before", "continue", { toolCallId: "c1" }),
      note(1010, "before", "continue", { toolCallId: "c1" }),
      note(1100, "before", "continue", { toolCallId: "c2" }),
      note(1250, "on_error", "error: no such row", { toolCallId: "c1" }),
      note(1300, "after", "continue", { toolCallId: "c2" }),
      note(3300, "on_error", "propagate", { toolCallId: "c1" }),
      note(3400, "after", "continue", { callback: "only after" }),
      finished,
    ]);
    await me.ask("Add twice");
    await me.status("idle");
    const shown = await me.at("timeline-entry").evaluateAll((items) => items.map((item) =>
      [item.dataset.callback, item.dataset.hooks, item.querySelector(".took").textContent, item.dataset.decision]));
    assert.deepEqual(shown, [
      ["Log", "before on_error", "2.3 s", "propagate"],
      ["Log", "before on_error", "240 ms", "error"],
      ["Log", "before after", "200 ms", "continue"],
      ["only after", "after", "", "continue"],
    ]);
    assert.equal(await me.at("timeline-entry").and(me.page.locator(":visible")).count(), 1, "what failed is shown");
    await has(me.at("timeline"), "no such row");
  },
};
