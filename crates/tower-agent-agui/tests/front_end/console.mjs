// Drives the console's page in a browser: node console.mjs - OUT_DIR SERVER
//
// Somebody on duty, with the keyboard alone. The server is the example's: one round of its fleet. It
// is killed and started again, and reached through a proxy that strips a path. Screenshots go to
// OUT_DIR.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile, rm } from "node:fs/promises";
import http from "node:http";
import { join } from "node:path";
import { Person, browser, has, out } from "./page/browser.mjs";
import { startServer } from "./page/servers.mjs";

let server = await startServer();
const base = `${server.url}/console`;

/** Passes on what lies below `/ops/agents`, without that. */
async function startStripping() {
  const proxy = http.createServer((request, response) => {
    const path = request.url.replace(/^\/ops\/agents/, "/console");
    const headers = { ...request.headers, host: new URL(server.url).host };
    const upstream = http.request(server.url + path, { method: request.method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    upstream.on("error", () => response.destroy());
    response.on("close", () => upstream.destroy());
    request.pipe(upstream);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return { url: `http://127.0.0.1:${proxy.address().port}/ops/agents`, close: () => { proxy.closeAllConnections(); proxy.close(); } };
}

const person = await Person.at(base);
const { page } = person;
const rows = page.locator(".runs tbody tr");
const runOf = (agent) => page.locator(".runs tbody tr", { hasText: agent });
const call = (text) => page.locator(".pick", { hasText: text });
const focused = () => page.evaluate(() => document.activeElement.textContent);

/** Goes to something with the tab key, as far as it takes. */
async function tabTo(locator) {
  for (let presses = 0; presses < 200; presses += 1) {
    // Looked for each time: what has come from the server meanwhile may have drawn it anew.
    if (await locator.first().evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`the keyboard does not lead to ${locator}`);
}

async function press(locator, key = "Enter") {
  await tabTo(locator);
  await page.keyboard.press(key);
}

/** The list has so many runs, as soon as it is drawn. */
async function isOf(count) {
  await rows.nth(count - 1).waitFor();
  await rows.nth(count).waitFor({ state: "detached" });
}

/** Nothing lies beside a narrow page. */
async function isNarrow(name) {
  await page.setViewportSize({ width: 320, height: 700 });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 320, `${name} fits into 320 pixels`);
  await person.look(`console-${name}-320`);
  await page.setViewportSize({ width: 1280, height: 860 });
}

/** The same, for somebody who prefers the dark. */
async function isDark(name) {
  await page.emulateMedia({ colorScheme: "dark" });
  await person.look(`console-${name}-dark`);
  await page.emulateMedia({ colorScheme: null });
}

const steps = {
  "the runs of the fleet are listed, the latest first": async () => {
    await has(rows, "essay");
    await isOf(5);
    await has(runOf("spender"), "budget exceeded");
    await has(runOf("support"), "for support");
    await has(runOf("mail"), "Flow");
    await person.look("console-runs");
    await isNarrow("runs");
  },
  "a filter is in the address": async () => {
    await tabTo(page.getByLabel("Status"));
    await page.keyboard.type("failed");
    await page.keyboard.press("Tab");
    await page.waitForURL(/status=failed/);
    await has(rows, "spender");
    await isOf(1);
    await page.reload();
    await has(rows, "spender");
    await isOf(1);
    await page.goBack();
    await has(rows, "essay");
  },
  "a run is a tree that the arrow keys walk": async () => {
    await press(runOf("researcher").getByRole("link"));
    await page.getByRole("heading", { level: 1, name: "researcher" }).waitFor();
    await tabTo(call("agent"));
    await page.keyboard.press("ArrowDown");
    assert.match(await focused(), /turn\s*1/);
    const before = await page.locator(".row").count();
    await page.keyboard.press("ArrowLeft");
    const folded = await page.locator(".row").count();
    assert.ok(folded < before, "the turn is folded");
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.locator(".row").count(), before);
    await person.look("console-run");
    await isNarrow("run");
  },
  "a call shows what stands around it, its attempts and its texts": async () => {
    await press(call("3 attempts"));
    const detail = page.getByLabel("Details");
    await has(detail.locator(".stack li.layer"), "CallRetryLayer");
    await has(detail.locator(".stack .callback", { hasText: "long enough" }), "after: respond");
    await has(detail.locator(".stack .callback"), "an answer says when");
    assert.equal(await detail.locator(".attempts tbody tr").count(), 3);
    await has(detail.locator("pre"), "It was the one at Alexandria.");
    await page.waitForURL(/at=\d+/);
    await person.look("console-call");
    await page.reload();
    await has(detail.locator(".attempts"), "overloaded");
    await isNarrow("call");
  },
  "what was redacted is not on the page": async () => {
    await call(/Redact.*changed the response/).first().click();
    await has(page.getByLabel("Details").locator("pre"), "[email]");
    assert.doesNotMatch(await page.content(), /jo@example/);
  },
  "what a callback has changed is marked": async () => {
    await page.goto(base);
    await press(runOf("spender").getByRole("link"));
    await press(call("brief: changed the request's instructions"));
    const detail = page.getByLabel("Details");
    await has(detail, "What brief changed");
    await has(detail.locator("ins"), "Be brief.");
    await person.look("console-changed");
  },
  "a mail that is not obeyed": async () => {
    await page.goto(base);
    await press(runOf("mail").getByRole("link"));
    await press(call("pay"));
    const detail = page.getByLabel("Details");
    await has(detail, "The tool was not called.");
    await has(detail.locator(".callback", { hasText: "Flow" }), "before: respond");
    await person.look("console-mail");
  },
  "a call says what has broken the cached prefix": async () => {
    await press(page.locator(".pick", { has: page.locator(".kind.model"), hasText: "cached prefix cut" }));
    const detail = page.getByLabel("Details");
    await has(detail, "the cached prefix ends at the instructions: changed by clock");
    await has(detail, "tokens were read from the provider's cache");
    await person.look("console-prefix");
    await isDark("prefix");
    await isNarrow("prefix");
  },
  "durable runs are listed, and one that is lost goes on": async () => {
    await press(page.getByRole("link", { name: "Durable" }));
    const durable = page.locator(".durable tbody tr");
    await has(durable, "completed");
    await person.look("console-durable");
    await isDark("durable");
    await isNarrow("durable");
    await press(durable.getByRole("link"));
    await has(page.locator("h1"), "mail");
    await page.goBack();
    await has(durable, "mail");
    await tabTo(page.getByLabel("Status"));
    await page.keyboard.type("waiting");
    await page.keyboard.press("Tab");
    await page.waitForURL(/status=waiting/);
    await page.reload();
    await has(page.getByRole("status"), "No durable run is like this.");
    // A process would have to be gone for half a minute: the server's word is made up here.
    const lost = { place: "1000~~lost", id: "lost", agent: "mail", version: "2", conversation: null, user: null, status: "lost", waits_for: [], error: null, begun: 1e15, updated: 1e15 + 5e6, run: null, may_resume: true };
    const asked = [];
    await page.route("**/api/durable?*", (route) => route.fulfill({ json: { runs: [lost], next: asked.length ? null : "1000~~lost" } }));
    await page.route("**/api/durable/resume", (route) => { asked.push(route.request().postDataJSON()); return route.fulfill({ status: 202, body: "" }); });
    await page.reload();
    await has(page.getByRole("link", { name: "Older runs" }), "Older");
    await person.look("console-lost");
    await isNarrow("lost");
    await press(page.getByRole("button", { name: "Resume" }));
    await has(page.getByRole("status"), "lost goes on.");
    assert.deepEqual(asked, [{ place: "1000~~lost" }]);
    await page.unrouteAll();
  },
  "the stacks of agents": async () => {
    await press(page.getByRole("link", { name: "Agents" }));
    await has(page.locator(".explained h2"), "researcher");
    await has(page.locator(".explained h3"), "critics");
    await person.look("console-agents");
    await isNarrow("agents");
  },
  "budgets, limits and breakers as they stand": async () => {
    await press(page.getByRole("link", { name: "Limits" }));
    await page.waitForURL(/view=limits/);
    const limit = (name) => page.locator(".limits tbody tr", { hasText: name });
    await has(limit("the spender's budget"), "used up");
    await has(limit("the spender's budget"), "model calls used 6 of 6");
    await has(limit("the library's provider"), "closed");
    await has(limit("each customer"), "ada-0");
    await person.look("console-limits");
    await isDark("limits");
    await isNarrow("limits");
    await page.reload();
    await has(limit("each customer"), "requests left at once");
  },
  "a question is answered, and the run goes on in sight of another page": async () => {
    const other = await Person.at(base);
    await has(other.page.locator(".runs tbody tr"), "support");
    const before = await other.page.locator(".runs tbody tr").count();
    await press(page.getByRole("link", { name: "Inbox" }));
    await has(page.locator("article"), "refund");
    await has(page.locator("article pre"), "4990");
    await person.look("console-inbox");
    await isNarrow("inbox");
    await press(page.getByRole("button", { name: "Approve" }));
    await has(page.getByRole("status"), "Answered.");
    await has(page.locator(".audit tbody tr"), "accepted");
    await other.page.locator(".runs tbody tr").nth(before).waitFor();
    await has(other.page.locator(".runs tbody tr", { hasText: "support" }).first(), "completed");
    await other.leave();
  },
  "two runs are looked at beside each other": async () => {
    await page.goto(`${base}?agent=support`);
    await press(rows.first().getByRole("link"));
    await page.getByLabel("Another run of this agent").waitFor();
    await press(page.getByRole("button", { name: "Show beside" }));
    await page.waitForURL(/beside=/);
    const pairs = page.locator(".pair");
    await has(pairs, "refund");
    await tabTo(page.locator(".pick"));
    await page.keyboard.press("End");
    await page.keyboard.press("Home");
    assert.match(await focused(), /support.*support/);
    // One of them waits, the other one goes on behind the answer: a step that one alone has.
    await has(page.locator(".pair.alone"), "model");
    await press(page.locator(".pick", { hasText: "refund" }));
    const detail = page.getByLabel("Details");
    await has(detail, "This run has no such step.");
    // Of two agents that were asked the same.
    await page.goto(base);
    const id = async (agent) => new URL(await runOf(agent).getByRole("link").getAttribute("href"), base).searchParams.get("run");
    await has(rows, "essay");
    await page.goto(`${base}?${new URLSearchParams({ run: await id("mail"), beside: await id("spender") })}`);
    await press(page.locator(".pick", { hasText: "model" }));
    await has(detail, "In: the same");
    await has(detail.locator("del"), "read_mail");
    await has(detail.locator("ins"), "look");
    await page.waitForURL(/at=b?\d+/);
    await person.look("console-beside");
    await isNarrow("beside");
    await page.reload();
    await has(detail.locator("ins"), "look");
  },
  "a run is forked before a call, and saved as a recording": async () => {
    await page.goto(base);
    await press(runOf("support").first().getByRole("link"));
    await has(page.locator("h1"), "support");
    const saved = page.waitForEvent("download");
    await press(page.getByRole("link", { name: "Save as recording" }));
    const recording = JSON.parse(await readFile(await (await saved).path(), "utf8"));
    assert.equal(recording.tower_agent_recording, 1);
    const origin = new URL(page.url()).searchParams.get("run");
    await press(page.locator(".pick", { has: page.locator(".kind.model") }));
    await press(page.getByRole("button", { name: "Fork before this call" }));
    await has(page.getByLabel(/Messages/), "");
    await person.look("console-fork");
    await isNarrow("fork");
    await page.getByLabel("One more message").fill("And quickly.");
    await press(page.getByRole("button", { name: "Fork", exact: true }));
    await page.waitForURL((address) => address.searchParams.get("run")?.startsWith(`${origin}-fork-`));
    await has(page.locator(".facts"), `Fork of${origin}`);
    await press(page.getByRole("link", { name: new RegExp(`^${origin}, step`) }));
    await has(page.locator(".facts"), "Forks");
    await press(page.getByRole("link", { name: "Audit" }));
    await has(page.locator(".audit tbody tr"), `run ${origin} from step`);
  },
  "a run and all of a user's are exported and deleted": async () => {
    await page.goto(`${base}?agent=mail`);
    await press(rows.first().getByRole("link"));
    const download = page.waitForEvent("download");
    await press(page.getByRole("button", { name: "Export", exact: true }));
    assert.match((await download).suggestedFilename(), /\.json$/);
    await has(page.getByRole("status"), "Exported.");
    await press(page.getByRole("button", { name: "Delete…", exact: true }));
    const dialog = page.getByRole("dialog");
    await has(dialog, "for good");
    await person.look("console-delete");
    await isNarrow("delete");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await press(page.getByRole("button", { name: "Delete…", exact: true }));
    await press(dialog.getByRole("button", { name: "Delete" }));
    await has(rows, "essay");
    await runOf("mail").waitFor({ state: "detached" });

    await page.goto(`${base}?agent=support`);
    await press(rows.first().getByRole("link"));
    await press(page.getByRole("button", { name: "Delete all of the user…" }));
    await press(dialog.getByRole("button", { name: "Delete" }));
    await has(rows, "essay");
    await runOf("support").first().waitFor({ state: "detached" });
    await press(page.getByRole("link", { name: "Audit" }));
    await has(page.locator(".audit tbody tr"), "delete");
    await person.look("console-audit");
    await isNarrow("audit");
  },
  "the page finds a server that was started again": async () => {
    await page.goto(base);
    await has(rows, "essay");
    const first = await rows.first().locator("time").getAttribute("datetime");
    await server.kill();
    await has(page.locator("#status"), "trying again");
    server = await startServer(server.port);
    await has(page.locator("#status"), "live");
    await page.waitForFunction((first) => document.querySelector(".runs tbody time")?.dateTime > first, first);
    // Those of the new process alone.
    await isOf(5);
    // Each attempt to connect was a line of the browser's own.
    person.complaints.splice(0);
  },
  "a run of the process before is gone, and says so": async () => {
    await press(runOf("essay").getByRole("link"));
    await has(page.locator(".tree .row"), "critics");
    await server.kill();
    server = await startServer(server.port);
    await has(page.getByRole("alert"), "gone");
    await has(page.locator(".tree .row"), "critics");
    person.complaints.splice(0);
  },
  "with a database the runs of the process before are there": async () => {
    process.env.DATABASE = join(out, "runs.db");
    for (const end of ["", "-wal", "-shm"]) await rm(process.env.DATABASE + end, { force: true });
    await server.kill();
    server = await startServer(server.port);
    await page.goto(base);
    await press(runOf("mail").getByRole("link"));
    await has(page.locator(".pick"), "pay");
    await server.kill();
    server = await startServer(server.port);
    await has(page.locator("h1 .badge"), "completed");
    await page.waitForFunction(() => document.querySelector("#status").textContent === "");
    assert.equal(await page.getByRole("alert").count(), 0, "it is not gone");
    await press(call("pay"));
    await has(page.getByLabel("Details").locator("pre"), "untrusted content");
    await page.reload();
    await has(page.getByLabel("Details").locator("pre"), "untrusted content");
    await page.goto(base);
    await has(rows, "essay");
    // Those of both processes.
    await isOf(10);
    await runOf("mail").nth(1).getByRole("link").click();
    await press(page.getByRole("button", { name: "Delete…", exact: true }));
    await press(page.getByRole("dialog").getByRole("button", { name: "Delete" }));
    await has(rows, "essay");
    await page.reload();
    await has(rows, "essay");
    await isOf(9);
    // Each attempt to connect was a line of the browser's own.
    person.complaints.splice(0);
  },
  "every address of the page works": async () => {
    const proxy = await startStripping();
    for (const address of [base, `${base}/`, `${proxy.url}`, `${proxy.url}/`]) {
      const visitor = await Person.at(address);
      await has(visitor.page.locator(".runs tbody tr"), "mail");
      await has(visitor.page.locator("#status"), "live");
      await visitor.page.locator(".runs tbody tr", { hasText: "mail" }).getByRole("link").click();
      await has(visitor.page.locator(".pick"), "pay");
      await visitor.page.reload();
      await has(visitor.page.locator(".pick"), "pay");
      await visitor.leave();
    }
    proxy.close();
  },
  "the browser had nothing to complain of": async () => {
    person.isContent();
  },
};

try {
  for (const [name, step] of Object.entries(steps)) {
    await step().catch(async (error) => {
      await person.shot("console-failed").catch(() => {});
      console.log(`FAIL ${name}: ${error.stack}\n${await page.locator("body").innerText()}`);
      process.exitCode = 1;
      throw error;
    });
    console.log(`ok   ${name}`);
  }
} finally {
  await browser.close();
  await server.kill();
}
