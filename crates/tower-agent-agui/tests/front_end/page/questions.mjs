// What the reader is asked: approvals, and the page's own tool.

import assert from "node:assert/strict";
import { QUESTIONS, calls, finished, has, says } from "./browser.mjs";
import { me } from "./answers.mjs";

const twoQuestions = [
  ...calls("c1", "pay", '{"sum":1}'), ...calls("c2", "pay", '{"sum":2}'),
  { type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [
    { id: "i1", reason: "tool_call", toolCallId: "c1", message: "Pay 1?" },
    { id: "i2", reason: "tool_call", toolCallId: "c2", message: "Pay 2?" }] } },
];

export const steps = {
  async "an approved call runs"() {
    await me.ask(QUESTIONS.remove);
    await me.at("approval").waitFor();
    await me.status("waiting");
    assert.ok(await me.at("send").isDisabled(), "nothing else can be asked meanwhile");
    assert.equal(await me.entries({ decision: "waits" }).getAttribute("data-callback"), "Approval");
    assert.deepEqual(await me.files(), ["notes.txt", "old.txt", "plan.md"], "nothing has happened yet");
    await me.look("10-approval");
    await me.at("approve").click();
    await me.status("idle");
    const card = me.card("delete_file");
    assert.equal(await card.getAttribute("data-phase"), "done");
    await has(card.getByTestId("tool-result"), "notes.txt");
    assert.equal(await me.at("approval").count(), 0, "the question is gone");
    assert.deepEqual(await me.files(), ["old.txt", "plan.md"]);
  },

  async "a question is declined with a reason, which is shown"() {
    await me.ask(QUESTIONS.remove);
    await me.at("approval-reason").fill("I still need it");
    await me.at("decline").click();
    await me.status("idle");
    const card = me.card("delete_file");
    assert.equal(await card.getAttribute("data-phase"), "declined");
    assert.equal(await card.getByTestId("tool-error").textContent(), "I still need it");
    await has(card.getByTestId("tool-result"), "I still need it");
    assert.deepEqual(await me.files(), ["old.txt", "plan.md"]);
    await me.look("11-declined");
  },

  async "a question is closed without an answer"() {
    await me.ask(QUESTIONS.remove);
    const request = me.page.waitForRequest("**/agent");
    await me.at("cancel").click();
    const [{ status, payload }] = (await request).postDataJSON().resume;
    assert.deepEqual({ status, payload }, { status: "cancelled", payload: undefined });
    await me.status("idle");
    assert.equal(await me.card("delete_file").getAttribute("data-phase"), "cancelled");
    assert.deepEqual(await me.files(), ["old.txt", "plan.md"]);
    assert.match(await me.lastText(), /I deleted nothing/);
  },

  async "a call runs with the arguments as edited"() {
    await me.ask(QUESTIONS.remove);
    await me.at("approval-arguments").fill("{ not json");
    await me.at("approve").click();
    await has(me.at("approval"), "must be a JSON object");
    await me.at("approval-arguments").fill('{ "path": "old.txt" }');
    await me.at("approve").click();
    await me.status("idle");
    const card = me.card("delete_file");
    assert.equal(await card.getByTestId("tool-edited").textContent(), '{ "path": "old.txt" }');
    await has(card.getByTestId("tool-result"), "old.txt");
    assert.deepEqual(await me.files(), ["plan.md"]);
  },

  async "the page's own tool answers"() {
    await me.ask(QUESTIONS.colour);
    await me.at("color-input").fill("#c2683c");
    assert.match(await me.at("timeline").locator("li").last().textContent(), /run waits for an answer/);
    await me.look("12-colour");
    await me.at("color-submit").click();
    await me.status("idle");
    assert.equal(await me.card("pick_color").getByTestId("tool-result").textContent(), "#c2683c");
    assert.match(await me.lastText(), /#c2683c/);
  },

  async "the page's own tool is declined, or closed"() {
    for (const [id, phase, told] of [["decline", "declined", "I like none of them"], ["cancel", "cancelled", "The user cancelled this call"]]) {
      await me.ask(QUESTIONS.colour);
      if (id === "decline") await me.at("color-reason").fill(told);
      await me.at(id).click();
      await me.status("idle");
      assert.equal(await me.card("pick_color").getAttribute("data-phase"), phase);
      assert.equal(await me.card("pick_color").getByTestId("tool-error").textContent(), told);
      assert.match(await me.lastText(), /No colour, then/);
    }
  },

  async "a reload keeps the chat while a question waits, and the question"() {
    for (const answer of ["approve", "decline"]) {
      await me.newChat();
      await me.ask(QUESTIONS.sum);
      await me.status("idle");
      await me.ask(QUESTIONS.remove);
      await me.at("approval").waitFor();
      await me.at("input").fill("what I was about to say");
      const shown = () => Promise.all(["message-user", "message-assistant", "tool-card", "timeline", "state", "usage", "status"]
        .map((id) => me.at(id).allTextContents()));
      const before = await shown();
      await me.page.reload();
      await me.at("approval").waitFor();
      assert.deepEqual(await shown(), before);
      assert.equal(await me.at("input").inputValue(), "what I was about to say");
      await me.look("13-reloaded");
      await me.at(answer).click();
      await me.status("idle");
      assert.equal(await me.card("delete_file").getAttribute("data-phase"), answer === "approve" ? "done" : "declined");
      assert.deepEqual(await me.files(), [...(answer === "approve" ? [] : ["notes.txt"]), "old.txt", "plan.md"]);
      await me.page.reload();
      assert.equal(await me.card("delete_file").getAttribute("data-phase"), answer === "approve" ? "done" : "declined", "what was decided is kept, too");
    }
  },

  async "a reload keeps a question of the page's own tool"() {
    await me.newChat();
    await me.ask(QUESTIONS.colour);
    await me.at("color").waitFor();
    await me.page.reload();
    await me.at("color-input").fill("#123456");
    await me.at("color-submit").click();
    await me.status("idle");
    assert.match(await me.lastText(), /#123456/);
    await me.newChat();
    await me.page.reload();
    assert.equal(await me.at("message-user").count(), 0, "a new chat stays new");
  },

  async "all open interrupts are answered in one run, and asked again if it fails"() {
    await me.newChat();
    await me.canned(twoQuestions);
    await me.ask("Pay twice");
    await me.at("approve").nth(0).click();
    await has(me.at("approval"), "Pay 1?: approved");
    await me.canned([{ type: "RUN_ERROR", message: "the bank is closed", code: "closed" }]);
    await me.at("decline").nth(1).click();
    await has(me.at("error"), "the bank is closed");
    await has(me.at("error"), "closed");
    assert.equal(await me.at("approve").and(me.page.locator(":visible")).count(), 2, "both are open again");
    assert.equal(await me.page.locator("[data-phase=declined]").count(), 0, "nothing is declined yet");
    await me.at("approve").nth(0).click();
    const sent = await me.canned([...says("b", "Paid."), finished]);
    await me.at("approve").nth(1).click();
    await me.status("idle");
    const { resume, messages } = (await sent.request).postDataJSON();
    assert.deepEqual(resume, ["i1", "i2"].map((interruptId) => ({ interruptId, status: "resolved", payload: { approved: true } })));
    assert.deepEqual(messages.flatMap(({ toolCalls = [] }) => toolCalls.map(({ id }) => id)), ["c1", "c2"], "what is resumed is told");
  },

  async "trying again after a failed answer does not give it again for what has run"() {
    await me.newChat();
    await me.canned(twoQuestions);
    await me.ask("Pay twice");
    await me.at("approve").nth(0).click();
    await me.canned([
      { type: "TOOL_CALL_RESULT", messageId: "r1", toolCallId: "c1", content: "paid 1" },
      { type: "RUN_ERROR", message: "the bank has closed" },
    ]);
    await me.at("approve").nth(1).click();
    await has(me.at("error"), "the bank has closed");
    assert.equal(await me.at("approval").count(), 1, "the first is settled");
    const sent = await me.canned([
      { type: "TOOL_CALL_RESULT", messageId: "r2", toolCallId: "c2", content: "paid 2" }, ...says("b", "Paid."), finished]);
    await me.at("try-again").click();
    await me.status("idle");
    const { resume, messages } = (await sent.request).postDataJSON();
    assert.deepEqual(resume, [{ interruptId: "i2", status: "resolved", payload: { approved: true } }]);
    assert.equal(messages.filter(({ role }) => role === "user").length, 1, "the question is not said twice");
  },

  async "questions that the server has forgotten can be set aside"() {
    await me.newChat();
    await me.canned(twoQuestions);
    await me.ask("Pay twice");
    await me.at("approve").nth(0).click();
    await me.nextRun(() => ({ status: 409, contentType: "application/json", body: '{"error":{"message":"the interrupt `i1` is not open"}}' }));
    await me.at("approve").nth(1).click();
    await has(me.at("error"), "The server refused this: the interrupt i1 is not open");
    await me.look("14-forgotten");
    await me.at("set-aside").click();
    await me.status("idle");
    assert.equal(await me.at("approval").count(), 0);
    assert.deepEqual(await me.at("tool-card").evaluateAll((cards) => cards.map(({ dataset }) => dataset.phase)), ["no result", "no result"]);
    await me.wasTold(/409/);
    await me.ask(QUESTIONS.sum);
    await me.status("idle");
    assert.match(await me.lastText(), /122/, "the conversation goes on");
  },
};
