// Drives the example's page in a browser: node page.mjs BASE_URL OUT_DIR
//
// The browser is the system's Chromium (CHROMIUM names another); screenshots go to OUT_DIR.
// What the agent does with each question stands beside it in `QUESTIONS`.

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";

const QUESTIONS = {
  // A thought, one tool call at least, then an answer that contains 122.
  sum: "What is 12.5% of 840, plus 17?",
  // A call that a callback answers with a refusal.
  everything: "Delete everything",
  // A call of delete_file, which needs an approval.
  remove: "Delete notes.txt",
  // A call of pick_color, which the page answers; then an answer that names the colour.
  colour: "Help me pick a colour",
  // A text that streams for several seconds, a doorman in its middle.
  story: "Tell me a long story",
};
const PATIENCE = 20_000;

const [base, out] = process.argv.slice(2);
if (!base || !out) {
  console.log("usage: node page.mjs BASE_URL OUT_DIR");
  process.exit(2);
}
await mkdir(out, { recursive: true });

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  // Its own sandbox does not work for root, which tests in containers often are.
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});

/** What the browser complained of; requests that a test breaks off on purpose are not told here. */
const complaints = [];

async function open(options) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 860 }, ...options });
  page.setDefaultTimeout(PATIENCE);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(`${message.type()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`exception: ${error.stack}`));
  const { "x-frame-options": framing } = (await page.goto(base)).headers();
  assert.equal(framing, "DENY", "nobody else's page may show this one in a frame");
  return page;
}

const page = await open({ colorScheme: "light" });
const at = (id) => page.getByTestId(id);
const shot = (name, of = page) => of.screenshot({ path: join(out, `${name}.png`) });
const status = (wanted) => page.locator(`[data-testid=status][data-status=${wanted}]`).waitFor();
const files = async () => JSON.parse(await at("state").textContent()).files;
const lastText = () => at("message-assistant").last().locator(".text").textContent();
const has = (locator, text) => locator.filter({ hasText: text }).last().waitFor();

async function ask(text, shown = text) {
  await at("input").fill(text);
  await page.keyboard.press("Enter");
  await has(at("message-user"), shown);
}

async function newChat() {
  await at("new-chat").click();
  await page.getByRole("button", { name: QUESTIONS.sum }).waitFor();
}

/** Answers the next run with these events; resolves, within an object, to the request it was. */
async function canned(events) {
  let seen;
  const request = new Promise((resolve) => (seen = resolve));
  await page.route("**/agent", (route) => {
    seen(route.request());
    const { threadId, runId } = route.request().postDataJSON();
    const frames = [{ type: "RUN_STARTED" }, ...events].map((event) => `: a comment\n\ndata: ${JSON.stringify({ threadId, runId, ...event })}\n\n`);
    return route.fulfill({ contentType: "text/event-stream", body: frames.join("") });
  }, { times: 1 });
  return { request };
}

const says = (messageId, text) => [
  { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId, delta: text },
  { type: "TEXT_MESSAGE_END", messageId },
];

const calls = (toolCallId, toolCallName, args) => [
  { type: "TOOL_CALL_START", toolCallId, toolCallName, parentMessageId: "a" },
  { type: "TOOL_CALL_ARGS", toolCallId, delta: args },
  { type: "TOOL_CALL_END", toolCallId },
];

const steps = {
  async "greets and offers questions"() {
    assert.ok(await page.getByRole("button", { name: QUESTIONS.sum }).isVisible());
    await shot("1-welcome");
  },

  async "answers, and shows the thought, the tool call, the callbacks and the state"() {
    await ask(QUESTIONS.sum);
    await at("reasoning").waitFor();
    await shot("2-thinking");
    await status("idle");
    await has(at("reasoning"), "Thought");
    assert.match(await lastText(), /122/);

    const card = at("tool-card").first();
    assert.equal(await card.getAttribute("data-phase"), "done");
    assert.notEqual(await card.getByTestId("tool-arguments").textContent(), "");
    assert.match(await card.getByTestId("tool-result").textContent(), /\d/);

    const entries = await at("timeline-entry").evaluateAll((items) => items.map(({ dataset }) => `${dataset.hook} ${dataset.call}`));
    assert.ok(entries.includes("before model") && entries.includes("before tool"), `callbacks: ${entries}`);
    assert.notEqual(await at("state").textContent(), "{}", "the state is shown");
    assert.match(await at("usage").textContent(), /^\d+ in, \d+ out$/);
    await shot("3-answered");
  },

  async "hides what only continues"() {
    const quiet = page.locator("[data-testid=timeline-entry][data-decision=continue]");
    assert.ok(await quiet.first().isVisible());
    await at("hide-continue").check();
    assert.equal(await quiet.first().isVisible(), false);
    await at("hide-continue").uncheck();
  },

  async "a refusal of a callback is told, and by whom"() {
    await ask(QUESTIONS.everything);
    await status("idle");
    assert.match(await lastText(), /forbidden/);
    const refusal = page.locator("[data-testid=timeline-entry][data-decision=respond]");
    assert.equal(await refusal.getAttribute("data-callback"), "forbid delete_all_records");
    assert.equal(await refusal.getAttribute("data-hook"), "before");
    await shot("4-refused");
  },

  async "an approved call runs"() {
    await ask(QUESTIONS.remove);
    await at("approval").waitFor();
    await status("waiting");
    assert.ok(await at("send").isDisabled(), "nothing else can be asked meanwhile");
    const waits = page.locator("[data-testid=timeline-entry][data-decision=waits]");
    assert.equal(await waits.getAttribute("data-callback"), "Approval");
    assert.deepEqual(await files(), ["notes.txt", "old.txt", "plan.md"], "nothing has happened yet");
    await shot("5-approval");
    await at("approve").click();
    await status("idle");
    const card = page.locator("[data-tool=delete_file]").last();
    assert.equal(await card.getAttribute("data-phase"), "done");
    await has(card.getByTestId("tool-result"), "notes.txt");
    assert.equal(await at("approval").count(), 0, "the question is gone");
    assert.deepEqual(await files(), ["old.txt", "plan.md"]);
  },

  async "a rejected call tells the reason"() {
    await ask(QUESTIONS.remove);
    await at("approval-reason").fill("I still need it");
    await at("reject").click();
    await status("idle");
    await has(page.locator("[data-tool=delete_file]").last().getByTestId("tool-result"), "I still need it");
    assert.deepEqual(await files(), ["old.txt", "plan.md"]);
    await shot("6-rejected");
  },

  async "a call runs with the arguments as edited"() {
    await ask(QUESTIONS.remove);
    await at("approval-arguments").fill("{ not json");
    await at("approve").click();
    await has(at("approval"), "must be a JSON object");
    await at("approval-arguments").fill('{ "path": "old.txt" }');
    await at("approve").click();
    await status("idle");
    const card = page.locator("[data-tool=delete_file]").last();
    assert.equal(await card.getByTestId("tool-edited").textContent(), '{ "path": "old.txt" }');
    await has(card.getByTestId("tool-result"), "old.txt");
    assert.deepEqual(await files(), ["plan.md"]);
  },

  async "the page's own tool answers"() {
    await ask(QUESTIONS.colour);
    await at("color-input").fill("#c2683c");
    assert.match(await at("timeline").locator("li").last().textContent(), /run waits for an answer/);
    await shot("7-colour");
    await at("color-submit").click();
    await status("idle");
    assert.equal(await page.locator("[data-tool=pick_color]").last().getByTestId("tool-result").textContent(), "#c2683c");
    assert.match(await lastText(), /#c2683c/);
  },

  async "text is shown as it is written, and a run stops when told to"() {
    const story = at("message-assistant").nth(await at("message-assistant").count());
    await ask(QUESTIONS.story);
    await has(story.locator(".text"), "doorman");
    await shot("8-streaming");
    await at("stop").click();
    await has(at("notice"), "Stopped");
    await status("idle");
    const text = await story.locator(".text").textContent();
    assert.doesNotMatch(text, /on the stairs\.$/, "the story was not told to its end");
    await ask(QUESTIONS.sum);
    await status("idle");
    assert.match(await lastText(), /122/, "the conversation goes on");
    assert.equal(await story.locator(".text").textContent(), text, "what was told stays, and nothing follows");
    await shot("9-after-stop");
  },

  async "a failing server is shown, and asked again on demand"() {
    await page.route("**/agent", (route) => route.fulfill({
      status: 400, contentType: "application/json", body: '{"error":{"message":"the input is not understood"}}',
    }), { times: 1 });
    await at("input").fill(QUESTIONS.sum);
    await page.keyboard.press("Enter");
    await has(at("error"), "HTTP 400: the input is not understood");
    await status("failed");
    await shot("10-error");
    const [told] = complaints.splice(0);
    assert.match(told, /400/, "the browser's own report of the refusal");
    await at("try-again").click();
    await status("idle");
    assert.match(await lastText(), /122/);
  },

  async "a new chat begins empty"() {
    await newChat();
    assert.equal(await at("timeline-entry").count(), 0);
    assert.equal(await at("state").textContent(), "{}");
  },

  // From here on the answers are canned: what the page makes of events that this server may not send.
  async "a snapshot replaces the conversation, a delta changes the state"() {
    await newChat();
    await canned([
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
      { type: "RUN_FINISHED", outcome: { type: "success" } },
    ]);
    await ask("Tell me", "The secret?");
    await status("idle");
    assert.deepEqual(await at("message-assistant").allTextContents(), ["The secret is [removed]."]);
    assert.deepEqual(await at("message-user").allTextContents(), ["The secret?"]);
    await has(at("timeline"), "what was told is replaced");
    assert.equal(await at("reasoning").count(), 1, "reasoning that the snapshot does not tell stays");
    assert.deepEqual(JSON.parse(await at("state").textContent()),
      { list: [1, 9, 2, 3], "a/b": { c: 2 }, copied: { c: 2 }, moved: "yes" });
  },

  async "a stream is understood however it is cut"() {
    await newChat();
    const text = "Größer als 🦀?\n\nJa.";
    await page.evaluate((events) => {
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
        }));
      };
    }, [{ type: "RUN_STARTED" }, ...says("a", text), { type: "RUN_FINISHED" }]);
    await ask("Cut it small");
    await status("idle");
    assert.equal(await lastText(), text);
  },

  async "all open interrupts are answered in one run, and asked again if it fails"() {
    await newChat();
    await canned([
      ...calls("c1", "pay", '{"sum":1}'), ...calls("c2", "pay", '{"sum":2}'),
      { type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [
        { id: "i1", reason: "tool_call", toolCallId: "c1", message: "Pay 1?" },
        { id: "i2", reason: "tool_call", toolCallId: "c2", message: "Pay 2?" }] } },
    ]);
    await ask("Pay twice");
    await at("approve").nth(0).click();
    await has(at("approval"), "Pay 1? approved");
    await canned([{ type: "RUN_ERROR", message: "the bank is closed", code: "closed" }]);
    await at("reject").nth(1).click();
    await has(at("error"), "the bank is closed");
    await has(at("error"), "closed");
    assert.equal(await at("approve").and(page.locator(":visible")).count(), 2, "both are open again");
    await at("approve").nth(0).click();
    const sent = await canned([...says("a", "Paid."), { type: "RUN_FINISHED" }]);
    await at("approve").nth(1).click();
    await status("idle");
    const { resume, messages } = (await sent.request).postDataJSON();
    assert.deepEqual(resume, ["i1", "i2"].map((interruptId) => ({ interruptId, status: "resolved", payload: { approved: true } })));
    assert.deepEqual(messages.flatMap(({ toolCalls = [] }) => toolCalls.map(({ id }) => id)), ["c1", "c2"], "what is resumed is told");
  },

  async "a connection that breaks off is an error, and its half calls are not sent back"() {
    await newChat();
    await canned([...says("a", "Let me see."), ...calls("c1", "look", '{"at":"').slice(0, 2)]);
    await ask("Look");
    await has(at("error"), "closed before the run ended");
    assert.equal(await at("tool-card").getAttribute("data-phase"), "not answered");
    const sent = await canned([...says("b", "Here."), { type: "RUN_FINISHED" }]);
    await ask("Once more");
    await status("idle");
    const { messages } = (await sent.request).postDataJSON();
    assert.deepEqual(messages.map(({ role, content }) => `${role}: ${content}`), ["user: Look", "assistant: Let me see.", "user: Once more"]);
  },

  async "reads well in the dark and on a phone"() {
    for (const [name, options] of [
      ["11-dark", { colorScheme: "dark" }],
      ["12-phone", { colorScheme: "light", viewport: { width: 390, height: 844 } }],
    ]) {
      const other = await open(options);
      await other.getByRole("button", { name: QUESTIONS.sum }).click();
      await other.locator("[data-testid=tool-card][data-phase=done]").first().waitFor();
      await other.locator("[data-testid=status][data-status=idle]").waitFor();
      const overflow = await other.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${name}: the page is ${overflow} px too wide`);
      await shot(name, other);
      await other.close();
    }
  },
};

for (const [name, step] of Object.entries(steps)) {
  const begin = performance.now();
  try {
    await step();
    assert.deepEqual(complaints, [], "the browser has nothing to complain of");
  } catch (error) {
    console.log(`FAIL ${name}: ${error.message}`);
    if (complaints.length) console.log(`  the browser says: ${complaints.join("\n  ")}`);
    console.log(error.stack.split("\n").filter((line) => line.includes("page.mjs")).join("\n"));
    await shot("failed").catch(() => {});
    await browser.close();
    process.exit(1);
  }
  console.log(`ok   ${name} (${Math.round(performance.now() - begin)} ms)`);
}
await browser.close();
