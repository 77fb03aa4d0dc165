// Looks at a console with much in it: node long.mjs - OUT_DIR SERVER
//
// The server is `console-long` of the example. By default it is looked at for what is the same on every machine: how
// many elements there are, how much was fetched. With MEASURE=1 times are printed as well. Screenshots go to OUT_DIR.

import assert from "node:assert/strict";
import { Person, browser, has } from "./page/browser.mjs";
import { startServer } from "./page/servers.mjs";

/** What may be in the page at once, and what it may fetch before anybody has opened a call. */
const ELEMENTS = 6_000;
const REQUESTS = 40;
const BYTES = 4_000_000;

const server = await startServer();
const person = await Person.at(`${server.url}/console`);
const { page } = person;
const rows = page.locator(".tree .row");
const elements = () => page.evaluate(() => document.querySelectorAll("*").length);
const said = () => page.locator(".tree").textContent();
const isInSight = (locator) => locator.evaluate((element) => {
  const { top, bottom } = element.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
});

let asked = [];
page.on("request", (request) => asked.push(request.url()));

/** The bytes of what was fetched since the page was opened. */
const fetched = () => page.evaluate(() => performance.getEntriesByType("resource").reduce((all, { encodedBodySize }) => all + encodedBodySize, 0));

async function open(run) {
  asked = [];
  await page.goto(`${server.url}/console?run=${run}`);
  await has(page.locator("#status"), "live");
}

const steps = {
  "a run of 5,000 events and 50 MB is a few elements": async () => {
    await open("long");
    const { entries, content } = await page.evaluate(async () => {
      const all = [];
      for (let next = 0; next !== null;) {
        const answer = await (await fetch(`api/runs/long?from=${next}`)).text();
        if (answer.length > 600_000) throw new Error(`an answer of ${answer.length} bytes`);
        const part = JSON.parse(answer);
        all.push(...part.entries);
        ({ next } = part);
      }
      return { entries: all.length, content: all.reduce((sum, entry) => sum + (entry.content ?? 0), 0) };
    });
    assert.ok(entries >= 5_000, `${entries} entries`);
    assert.ok(content >= 50e6, `${content} bytes of texts`);

    await open("long");
    assert.ok(asked.length <= REQUESTS, `${asked.length} requests: ${asked.join("\n")}`);
    assert.ok(await fetched() <= BYTES, `${await fetched()} bytes`);
    assert.match(await said(), /turn 1668/, "the last turn is there to be found");
    assert.ok(await rows.count() >= 50 && await elements() <= ELEMENTS, `${await elements()} elements`);
    await person.look("console-long");
  },
  "the browser finds what is far away": async () => {
    assert.ok(await page.evaluate(() => window.find("turn 900")));
    const turn = rows.filter({ hasText: /^.turn900/ });
    await turn.waitFor();
    assert.ok(await elements() <= ELEMENTS, `${await elements()} elements`);
  },
  "the keyboard leads to both ends": async () => {
    await rows.first().locator(".pick").focus();
    await page.keyboard.press("End");
    const last = page.locator(".tree .pick:focus");
    await has(last, "model");
    assert.ok(await isInSight(last));
    await page.keyboard.press("ArrowUp");
    await has(last, "turn1668");
    for (let presses = 0; presses < 120; presses += 1) await page.keyboard.press("ArrowUp");
    await has(last, "turn1628");
    await page.keyboard.press("ArrowLeft");
    assert.equal(await last.locator("xpath=..").locator(".fold").getAttribute("aria-expanded"), "false");
    await page.keyboard.press("Home");
    await has(last, "agentlong");
    assert.ok(await elements() <= ELEMENTS, `${await elements()} elements`);
  },
  "a call that is opened fetches its own texts": async () => {
    asked = [];
    await rows.filter({ has: page.locator(".kind.tool") }).first().locator(".pick").click();
    await has(page.getByLabel("Details").locator("pre"), "All work and no play.");
    assert.deepEqual(asked.map((url) => url.split("/api/")[1]), ["runs/long/content/3"]);
    await person.look("console-long-call");
  },
  "what arrives asks for nothing and adds no elements": async () => {
    await open("live");
    await rows.filter({ has: page.locator(".kind.tool") }).first().locator(".pick").click();
    await has(page.getByLabel("Details").locator("pre"), "All work and no play.");
    await page.keyboard.press("Home");
    asked = [];
    const now = Number(/turn (\d+)\D*$/.exec(await said())[1]);
    await page.waitForFunction((turn) => document.querySelector(".tree").textContent.includes(`turn ${turn}`), now + 50);
    assert.deepEqual(asked, []);
    assert.ok(await elements() <= ELEMENTS, `${await elements()} elements`);
  },
  "a run and the other are looked at beside each other": async () => {
    await page.goto(`${server.url}/console?run=long&beside=live`);
    await page.locator(".pair").first().waitFor();
    assert.ok(await elements() <= 2 * ELEMENTS, `${await elements()} elements`);
    assert.match(await said(), /turn 1668/);
    await person.look("console-long-beside");
  },
  "the first page of many runs is small": async () => {
    asked = [];
    await page.goto(`${server.url}/many`);
    await page.locator(".runs tbody tr").nth(49).waitFor();
    assert.equal(await page.locator(".runs tbody tr").count(), 50);
    assert.ok(asked.length <= REQUESTS, `${asked.length} requests`);
    assert.ok(await fetched() <= 200_000, `${await fetched()} bytes`);
  },
  "the browser had nothing to complain of": async () => {
    person.isContent();
  },
};

/** Prints how long things take: of several times, the middle one. */
async function measure() {
  const devtools = await page.context().newCDPSession(page);
  const middle = (times) => times.toSorted((one, other) => one - other)[Math.floor(times.length / 2)];
  // When something stands in the page and was painted.
  await page.addInitScript(() => {
    const seen = new MutationObserver(() => {
      if (!document.querySelector(".row, .runs tbody tr")) return;
      seen.disconnect();
      requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now(); }));
    });
    seen.observe(document, { childList: true, subtree: true });
  });
  async function paint(name, address) {
    const times = [];
    const answers = [];
    for (let turn = 0; turn < 7; turn += 1) {
      await page.goto("about:blank");
      await page.goto(address);
      await page.waitForFunction(() => window.painted);
      const [painted, runs] = await page.evaluate(() => [window.painted, performance.getEntriesByType("resource").filter(({ name }) => name.includes("/api/runs")).map(({ duration }) => duration)[0]]);
      times.push(painted);
      answers.push(runs);
    }
    console.log(`${name}: painted after ${Math.round(middle(times))} ms, at most ${Math.round(Math.max(...times))}; the first answer took ${middle(answers).toFixed(1)} ms`);
  }
  /** Scrolls for so many frames, and says how long these took. */
  async function scroll(name, frames, step) {
    const { deltas, tasks } = await page.evaluate(async ([frames, step]) => {
      const tasks = [];
      const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)));
      observer.observe({ type: "long-animation-frame" });
      const deltas = [];
      let last = await new Promise(requestAnimationFrame);
      for (let frame = 0; frame < frames; frame += 1) {
        const isAtEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
        if (isAtEnd) scrollTo(0, 0);
        else scrollBy(0, step);
        const now = await new Promise(requestAnimationFrame);
        deltas.push(now - last);
        last = now;
      }
      observer.disconnect();
      return { deltas, tasks };
    }, [frames, step]);
    const late = deltas.filter((delta) => delta > 50).length;
    console.log(`${name}: ${frames} frames, the middle one ${middle(deltas).toFixed(1)} ms, the longest ${Math.max(...deltas).toFixed(1)} ms, ${late} over 50 ms; long animation frames: ${tasks.map(Math.round).join(", ") || "none"}`);
  }
  async function heap(name) {
    await devtools.send("Performance.enable");
    const used = async () => (await devtools.send("Performance.getMetrics")).metrics.find((metric) => metric.name === "JSHeapUsedSize").value / 1e6;
    const before = await used();
    await devtools.send("HeapProfiler.collectGarbage");
    console.log(`${name}: a heap of ${before.toFixed(1)} MB, ${(await used()).toFixed(1)} MB of it in use`);
  }
  await paint("the list of many runs", `${server.url}/many`);
  await paint("the long run", `${server.url}/console?run=long`);
  await has(page.locator("#status"), "live");
  await heap("the long run");
  await scroll("scrolling it slowly", 300, 40);
  await scroll("scrolling it fast", 300, 1_000);
  await heap("the long run, scrolled");
  await open("live");
  await scroll("standing, with 100 events a second", 600, 0);
  await scroll("scrolling, with 100 events a second", 600, 200);
  await heap("the live run");
  console.log(await page.evaluate(() => document.querySelector(".facts").textContent));
}

try {
  for (const [name, step] of Object.entries(steps)) {
    await step().catch(async (error) => {
      await person.shot("console-long-failed").catch(() => {});
      console.log(`FAIL ${name}: ${error.stack}`);
      process.exitCode = 1;
      throw error;
    });
    console.log(`ok   ${name}`);
  }
  if (process.env.MEASURE) await measure();
} finally {
  await browser.close();
  await server.kill();
}
