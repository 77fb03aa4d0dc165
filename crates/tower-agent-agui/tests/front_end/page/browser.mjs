// A person at the page: the browser, and what all steps do with it.

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

// A busy machine is slow; only a step that never ends fails by it.
const PATIENCE = 60_000;

export const QUESTIONS = {
  // A thought, one tool call at least, then an answer that contains 122.
  sum: "What is 12.5% of 840, plus 17?",
  // A call that a callback answers with a refusal.
  everything: "Delete everything",
  // A call of delete_file, which needs an approval.
  remove: "Delete notes.txt",
  // The same of a file that does not exist, so that the tool fails.
  missing: "Delete missing.txt",
  // A call of pick_color, which the page answers; then an answer that names the colour.
  colour: "Help me pick a colour",
  // A text that streams for several seconds, a doorman in its middle, and ends on the stairs.
  story: "Tell me a long story",
};

export const [base, out, ...command] = process.argv.slice(2);
if (!base || !out) {
  console.log("usage: node page.mjs BASE_URL OUT_DIR [SERVER COMMAND..]");
  process.exit(2);
}
await mkdir(out, { recursive: true });

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  // Its own sandbox does not work for root, which tests in containers often are.
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Everybody who has a page open. */
export const people = new Set();

export const has = (locator, text) => locator.filter({ hasText: text }).last().waitFor();

export class Person {
  static async at(url, options) {
    const page = await browser.newPage({ viewport: { width: 1280, height: 860 }, ...options });
    page.setDefaultTimeout(PATIENCE);
    const person = new Person(page);
    const { "x-frame-options": framing } = (await page.goto(url)).headers();
    assert.equal(framing, "DENY", "nobody else's page may show this one in a frame");
    return person;
  }

  constructor(page) {
    this.page = page;
    // What the browser complained of. A step that breaks something takes its complaints.
    this.complaints = [];
    page.on("console", (message) => {
      if (this.isComplaint(message)) this.complaints.push(`${message.type()}: ${message.text()}`);
    });
    page.on("pageerror", (error) => this.complaints.push(`exception: ${error.stack}`));
    people.add(this);
  }

  isComplaint(message) {
    return ["error", "warning"].includes(message.type());
  }

  /** Takes the browser's own report of what a step has broken, which comes some time after the page's. */
  async wasTold(of) {
    if (!this.complaints.length) await this.page.waitForEvent("console", (message) => this.isComplaint(message));
    const [first, ...more] = this.complaints.splice(0);
    assert.match(first, of);
    assert.deepEqual(more, []);
  }

  isContent() {
    assert.deepEqual(this.complaints, [], "the browser has nothing to complain of");
  }

  async leave() {
    this.isContent();
    people.delete(this);
    await this.page.close();
  }

  at(id) {
    return this.page.getByTestId(id);
  }

  card(tool) {
    return this.page.locator(`[data-tool=${tool}]`).last();
  }

  status(wanted) {
    return this.page.locator(`[data-testid=status][data-status=${wanted}]`).waitFor();
  }

  entries(wanted) {
    const conditions = Object.entries(wanted).map(([name, value]) => `[data-${name}="${value}"]`);
    return this.page.locator(`[data-testid=timeline-entry]${conditions.join("")}`);
  }

  async files() {
    return JSON.parse(await this.at("state").textContent()).files;
  }

  lastText() {
    return this.at("message-assistant").last().locator(".text").textContent();
  }

  shot(name) {
    return this.page.screenshot({ path: join(out, `${name}.png`) });
  }

  async ask(text, shown = text) {
    await this.at("input").fill(text);
    await this.at("input").press("Enter");
    await has(this.at("message-user"), shown);
  }

  async newChat() {
    await this.at("new-chat").click();
    await this.page.getByRole("button", { name: QUESTIONS.sum }).waitFor();
  }

  /** Answers the next run as `respond` says; resolves, within an object, to the request it was. */
  async nextRun(respond) {
    let seen;
    const request = new Promise((resolve) => (seen = resolve));
    await this.page.route("**/agent", async (route) => {
      seen(route.request());
      await route.fulfill(await respond(route.request().postDataJSON()));
    }, { times: 1 });
    return { request };
  }

  /** Answers the next run with these events, once `held` is over. */
  canned(events, held) {
    return this.nextRun(async ({ threadId, runId }) => {
      await held;
      const frames = [{ type: "RUN_STARTED" }, ...events].map((event) => `: a comment\n\ndata: ${JSON.stringify({ threadId, runId, ...event })}\n\n`);
      return { contentType: "text/event-stream", body: frames.join("") };
    });
  }

  /** A screenshot; and in light and in dark, nothing that keeps anybody from reading it. */
  async look(name) {
    await this.shot(name);
    await this.page.evaluate(axe);
    const violations = [];
    for (const colorScheme of ["dark", "light"]) {
      await this.page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      const found = await this.page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations
        .map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html}\n    ${failureSummary}`).join("\n    ")}`));
      violations.push(...found.map((violation) => `${colorScheme}: ${violation}`));
    }
    await this.page.emulateMedia({ colorScheme: null, reducedMotion: null });
    assert.deepEqual(violations, [], `${name} can be read by everybody`);
  }
}

/** Whether all of it is in sight. */
export const isInSight = (locator) => locator.evaluate((element) => {
  const { top, bottom } = element.getBoundingClientRect();
  const shown = document.getElementById("scroll").getBoundingClientRect();
  return top >= shown.top && bottom <= shown.bottom;
});

export const says = (messageId, text) => [
  { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
  { type: "TEXT_MESSAGE_CONTENT", messageId, delta: text },
  { type: "TEXT_MESSAGE_END", messageId },
];

export const calls = (toolCallId, toolCallName, args, parentMessageId = "a") => [
  { type: "TOOL_CALL_START", toolCallId, toolCallName, parentMessageId },
  { type: "TOOL_CALL_ARGS", toolCallId, delta: args },
  { type: "TOOL_CALL_END", toolCallId },
];

export const finished = { type: "RUN_FINISHED", outcome: { type: "success" } };

/** A promise, and what ends it. */
export function gate() {
  let open;
  const held = new Promise((resolve) => (open = resolve));
  return { held, open };
}
