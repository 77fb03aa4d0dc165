// What is answered: text, thoughts, tool calls, the callbacks and the state beside them.

import assert from "node:assert/strict";
import { Person, QUESTIONS, base, has } from "./browser.mjs";

/** The person who does most of the steps, one after the other. */
export const me = await Person.at(base, { colorScheme: "light" });

export const steps = {
  async "greets and offers questions"() {
    assert.ok(await me.page.getByRole("button", { name: QUESTIONS.sum }).isVisible());
    await me.look("1-welcome");
  },

  async "answers, and shows the thought, the tool call, the callbacks and the state"() {
    await me.ask(QUESTIONS.sum);
    await me.at("reasoning").waitFor();
    await me.shot("2-thinking");
    await me.status("idle");
    await has(me.at("reasoning"), "Thought");
    assert.match(await me.lastText(), /122/);

    const card = me.at("tool-card").first();
    assert.equal(await card.getAttribute("data-phase"), "done");
    assert.notEqual(await card.getByTestId("tool-arguments").textContent(), "");
    assert.match(await card.getByTestId("tool-result").textContent(), /\d/);
    assert.notEqual(await me.at("state").textContent(), "{}", "the state is shown");
    assert.match(await me.at("usage").textContent(), /^\d+ in, \d+ out$/);
    await me.look("3-answered");
  },

  async "the timeline pairs before and after, says how long it took, and hides what only continued"() {
    const log = me.entries({ callback: "Log", call: "model", hooks: "before after" });
    const tools = await me.at("tool-card").count();
    assert.equal(await log.count(), tools + 1, "one entry for each model call");
    assert.match(await log.first().locator(".took").textContent(), /^\d+ ms$|^[\d.]+ s$/);
    assert.equal(await me.entries({ callback: "TokenCount", hooks: "after" }).first().locator(".took").textContent(), "");

    assert.equal(await me.at("timeline-entry").and(me.page.locator(":visible")).count(), 0, "nothing but `continue` was decided");
    const all = await me.at("timeline-entry").count();
    await me.page.getByLabel(`show ${all} that only continued`).check();
    assert.equal(await me.at("timeline-entry").and(me.page.locator(":visible")).count(), all);
    await me.look("4-timeline");
    await me.at("show-all").uncheck();
    assert.equal(await log.first().isVisible(), false);
  },

  async "a refusal of a callback is told, and by whom"() {
    await me.ask(QUESTIONS.everything);
    await me.status("idle");
    assert.match(await me.lastText(), /forbidden/);
    const refusal = me.entries({ decision: "respond" });
    assert.ok(await refusal.isVisible());
    assert.equal(await refusal.getAttribute("data-callback"), "forbid delete_all_records");
    assert.equal(await refusal.getAttribute("data-hooks"), "before");
    await me.look("5-refused");
  },

  async "a failed tool is not called done"() {
    const card = me.card("delete_all_records");
    assert.equal(await card.getAttribute("data-phase"), "failed");
    assert.equal(await card.getByTestId("tool-error").textContent(), "delete_all_records is forbidden here");
    assert.equal(await card.getByTestId("tool-result").isVisible(), false);
    await me.ask(QUESTIONS.missing);
    await me.at("approve").click();
    await me.status("idle");
    assert.equal(await me.card("delete_file").getAttribute("data-phase"), "failed");
    await has(me.card("delete_file").getByTestId("tool-error"), "there is no missing.txt");
  },

  async "text is shown as it is written, and a run stops when told to"() {
    const story = me.at("message-assistant").nth(await me.at("message-assistant").count());
    await me.ask(QUESTIONS.story);
    await has(story.locator(".text"), "doorman");
    await me.look("6-streaming");
    await me.at("stop").click();
    await has(me.at("notice"), "Stopped");
    await me.status("idle");
    const text = await story.locator(".text").textContent();
    assert.doesNotMatch(text, /on the stairs\.$/, "the story was not told to its end");
    assert.ok(await story.getByTestId("unfinished").isVisible());
    await me.ask(QUESTIONS.sum);
    await me.status("idle");
    assert.match(await me.lastText(), /122/, "the conversation goes on");
    assert.equal(await story.locator(".text").textContent(), text, "what was told stays, and nothing follows");
    await me.shot("7-after-stop");
  },

  async "an answer is told once to those who listen, when it is whole"() {
    await me.newChat();
    assert.equal(await me.page.locator("#log").evaluate((log) => log.closest("[aria-live], [role=log]")), null, "not word by word");
    await me.page.evaluate(() => {
      window.heard = [];
      const said = document.querySelector("[data-testid=said]");
      new MutationObserver(() => window.heard.push(said.textContent)).observe(said, { childList: true, characterData: true, subtree: true });
    });
    for (const time of [1, 2]) {
      await me.ask(QUESTIONS.sum);
      await me.status("idle");
      const heard = (await me.page.evaluate(() => window.heard)).filter(Boolean);
      assert.deepEqual(heard, Array(time).fill(await me.lastText()));
    }
  },

  async "a new chat begins empty"() {
    await me.newChat();
    assert.equal(await me.at("timeline-entry").count(), 0);
    assert.equal(await me.at("state").textContent(), "{}");
  },
};

/** Each has a page of its own. */
export const apart = {
  async "reads well in the dark and on a phone"() {
    for (const [name, options] of [
      ["8-dark", { colorScheme: "dark" }],
      ["9-phone", { colorScheme: "light", viewport: { width: 390, height: 844 } }],
    ]) {
      const other = await Person.at(base, options);
      await other.page.getByRole("button", { name: QUESTIONS.sum }).click();
      await other.page.locator("[data-testid=tool-card][data-phase=done]").first().waitFor();
      await other.status("idle");
      const overflow = await other.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${name}: the page is ${overflow} px too wide`);
      await other.look(name);
      await other.leave();
    }
  },
};
