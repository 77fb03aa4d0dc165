// Drives the example's page in a browser: node page.mjs BASE_URL OUT_DIR [SERVER COMMAND..]
//
// The browser is the system's Chromium (CHROMIUM names another); screenshots go to OUT_DIR.
// What the agent does with each question stands beside it in `QUESTIONS`. With a command, a server
// of its own is started and killed: on the port of PORT, or a free one, it prints its address.

import assert from "node:assert/strict";
import { browser, complaints } from "./page/browser.mjs";
import { steps as answers, me } from "./page/answers.mjs";
import { steps as questions } from "./page/questions.mjs";
import { steps as reading } from "./page/reading.mjs";
import { steps as events } from "./page/events.mjs";
import { steps as faults } from "./page/faults.mjs";

const steps = { ...answers, ...questions, ...reading, ...events, ...faults };
const [only] = [process.env.ONLY].filter(Boolean);

for (const [name, step] of Object.entries(steps)) {
  if (only && !name.includes(only)) continue;
  const begin = performance.now();
  try {
    await step();
    assert.deepEqual(complaints, [], "the browser has nothing to complain of");
  } catch (error) {
    console.log(`FAIL ${name}: ${error.message}`);
    if (complaints.length) console.log(`  the browser says: ${complaints.join("\n  ")}`);
    console.log(error.stack.split("\n").filter((line) => line.includes(".mjs")).join("\n"));
    await me.shot("failed").catch(() => {});
    await browser.close();
    process.exit(1);
  }
  console.log(`ok   ${name} (${Math.round(performance.now() - begin)} ms)`);
}
await browser.close();
