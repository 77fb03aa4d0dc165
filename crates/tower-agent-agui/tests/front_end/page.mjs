// Drives the example's page in a browser: node page.mjs BASE_URL OUT_DIR [SERVER COMMAND..]
//
// The browser is the system's Chromium (CHROMIUM names another); screenshots go to OUT_DIR.
// What the agent does with each question stands beside it in `QUESTIONS`. With a command, a server
// of its own is started and killed: on the port of PORT, or a free one, it prints its address.
// ONLY, if it is set, stands in the names of the steps that are taken.

import { browser, people } from "./page/browser.mjs";
import * as answers from "./page/answers.mjs";
import * as questions from "./page/questions.mjs";
import * as reading from "./page/reading.mjs";
import * as events from "./page/events.mjs";
import * as faults from "./page/faults.mjs";

const { me } = answers;

async function walk(steps, afterEach = () => {}) {
  for (const [name, step] of Object.entries(steps)) {
    if (!name.includes(process.env.ONLY ?? "")) continue;
    const begin = performance.now();
    try {
      await step();
      afterEach();
    } catch (error) {
      console.log(`FAIL ${name}: ${error.message}`);
      console.log(error.stack.split("\n").filter((line) => line.includes(".mjs")).join("\n"));
      for (const [index, person] of [...people].entries()) {
        if (person.complaints.length) console.log(`  the browser says: ${person.complaints.join("\n  ")}`);
        await person.shot(`failed-${index}`).catch(() => {});
      }
      await browser.close();
      process.exit(1);
    }
    console.log(`ok   ${name} (${Math.round(performance.now() - begin)} ms)`);
  }
}

// One person takes most steps, one after the other, and has nothing to complain of between two of them. Others wait
// meanwhile for servers that fail: each says at its end that it is content.
const apart = { ...answers.apart, ...faults.apart };
await Promise.all([
  walk({ ...answers.steps, ...questions.steps, ...reading.steps, ...events.steps, ...faults.steps }, () => me.isContent()),
  walk(apart),
]);
await browser.close();
