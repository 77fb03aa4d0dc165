// Drives the shop's pages in a browser: node shop.mjs SERVER OUT_DIR
//
// A customer, support and a second device; the server is killed in the middle of an answer. The
// browser is the system's Chromium (CHROMIUM names another).

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const PATIENCE = 20_000;
const [command, port, out] = process.argv.slice(2);
const folder = await mkdtemp(join(tmpdir(), "shop-"));
let server;

async function start() {
  const env = { ...process.env, PORT: port, SHOP_DB: join(folder, "shop.db") };
  server = spawn(command, { env, stdio: ["ignore", "pipe", "ignore"] });
  await new Promise((done, fail) => {
    server.stdout.once("data", done);
    server.once("exit", () => fail(new Error("the server ended")));
  });
}

async function kill() {
  const ended = new Promise((done) => server.once("exit", done));
  server.kill("SIGKILL");
  await ended;
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  // Its own sandbox does not work for root, which tests in containers often are.
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});

async function open(path) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.goto(`http://127.0.0.1:${port}${path}`);
  return page;
}

const has = (page, selector, text) => page.locator(selector, { hasText: text }).last().waitFor();

async function say(page, text) {
  await page.getByLabel("Your message").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

async function post(path, user, body) {
  const headers = { "x-user": user, "content-type": "application/json" };
  return fetch(`http://127.0.0.1:${port}${path}`, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
}

await start();
const customer = await open("/?as=ada");
const staff = await open("/staff");

const steps = {
  "a customer talks with the agent": async () => {
    await say(customer, "Hi");
    await has(customer, ".assistant", "Hello! What can I do for you?");
  },
  "a refund waits for support": async () => {
    await say(customer, "I want a refund");
    await has(customer, "#note", "A colleague is looking at it.");
  },
  "the customer can neither see nor answer the question": async () => {
    assert.equal((await post("/inbox", "ada")).status, 403);
    const { questions: [question] } = await (await post("/inbox", "support")).json();
    assert.deepEqual(question.payload.arguments, { order: "A7", cents: 4990 });
    const answer = { key: question.key, id: question.id, answer: { approved: true } };
    assert.equal((await post("/inbox", "ada", answer)).status, 403);
    assert.equal((await post(`/threads/${question.key.thread}`, "bob")).status, 404);
  },
  "support sees the exact values, changes them and approves": async () => {
    const edited = staff.getByLabel("Arguments");
    assert.deepEqual(JSON.parse(await edited.inputValue()), { order: "A7", cents: 4990 });
    await edited.fill('{ "order": "A7", "cents": 4000 }');
    await staff.getByRole("button", { name: "Approve" }).click();
    await has(staff, "#note", "Answered.");
    await edited.waitFor({ state: "detached" });
  },
  "the customer's page shows the result without a reload": async () => {
    await has(customer, ".assistant", "4000 cents were refunded for A7");
  },
  "a second device shows the thread": async () => {
    const second = await browser.newPage();
    await second.goto(customer.url());
    await has(second, ".assistant", "4000 cents were refunded for A7");
    const texts = (page) => page.locator(".message").allTextContents();
    assert.deepEqual(await texts(second), await texts(customer));
    await second.close();
    // As the official client reads it.
    const thread = new URL(customer.url()).searchParams.get("thread");
    const events = await (await post(`/agent?threadId=${thread}`, "ada")).text();
    const snapshots = events.split("\n").filter((line) => line.includes("MESSAGES_SNAPSHOT"));
    const { messages } = JSON.parse(snapshots.at(-1).slice("data: ".length));
    const shown = messages.filter(({ role, content }) => content && (role === "user" || role === "assistant"));
    assert.deepEqual(shown.map(({ content }) => content), await texts(customer));
    assert.equal((await post(`/agent?threadId=${thread}`, "bob")).status, 404);
  },
  "the conversation goes on": async () => {
    await say(customer, "Thanks");
    await customer.locator(".assistant", { hasText: "Hello!" }).nth(1).waitFor();
  },
  "the customer does not read the provider's error": async () => {
    await say(customer, "Please fail");
    await has(customer, "#note", "Something went wrong on the server");
    const text = await customer.locator("body").innerText();
    assert.doesNotMatch(text, /stack trace|upstream|10\.0\.0\.7/);
  },
  "the customer goes on within the lease after the server was killed": async () => {
    await say(customer, "Tell me a story");
    await has(customer, ".assistant", "once upon a time once");
    await kill();
    await has(customer, "#note", "cannot be reached");
    await start();
    await say(customer, "Hi again");
    const before = performance.now();
    await has(customer, ".user", "Hi again");
    await customer.locator(".message").last().filter({ hasText: "Hello!" }).waitFor();
    assert.ok(performance.now() - before < PATIENCE);
  },
  "each customer has a budget": async () => {
    const bob = await open("/?as=bob");
    for (let call = 1; call <= 20; call += 1) {
      await say(bob, `Hi ${call}`);
      await bob.locator(".assistant").nth(call - 1).filter({ hasText: "Hello! What can I do for you?" }).waitFor();
    }
    await say(bob, "One more");
    await has(bob, "#note", "You have used up today's answers.");
    const answers = await customer.locator(".assistant").count();
    await say(customer, "And me?");
    await customer.locator(".assistant").nth(answers).filter({ hasText: "Hello!" }).waitFor();
  },
};

try {
  for (const [name, step] of Object.entries(steps)) {
    await step().catch(async (error) => {
      await customer.screenshot({ path: join(out, "shop-failed.png") }).catch(() => {});
      console.log(`FAIL ${name}: ${error.message}\n${await customer.locator("body").innerText()}`);
      process.exitCode = 1;
      throw error;
    });
    console.log(`ok   ${name}`);
  }
} finally {
  await browser.close();
  if (server.exitCode === null) await kill();
  await rm(folder, { recursive: true });
}
