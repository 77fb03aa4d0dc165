// Scrolling, focus and keys: the page does not fight the reader.

import assert from "node:assert/strict";
import { QUESTIONS, calls, finished, gate, has, isInSight, says } from "./browser.mjs";
import { me } from "./answers.mjs";

const LONG = "A long answer.\n".repeat(80);

const focused = () => me.page.evaluate(() => document.activeElement.dataset.testid ?? document.activeElement.id ?? document.activeElement.tagName);
const scrollTop = () => me.at("scroll").evaluate((scroll) => scroll.scrollTop);
const isAtEnd = () => me.at("scroll").evaluate(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight < 4);

async function scrollUp() {
  await me.at("scroll").hover();
  const before = await scrollTop();
  await me.page.mouse.wheel(0, -200);
  await me.page.waitForFunction((before) => document.getElementById("scroll").scrollTop < before, before);
  await me.at("below").waitFor();
  return scrollTop();
}

/** A chat that has to be scrolled. */
async function longChat() {
  await me.newChat();
  await me.canned([...says("long", LONG), finished]);
  await me.ask("At length, please");
  await me.status("idle");
  assert.ok(await isAtEnd(), "new text is followed");
}

const question = [
  ...calls("c1", "pay", '{"sum":1}'),
  { type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [{ id: "i1", reason: "tool_call", toolCallId: "c1", message: "Pay 1?" }] } },
];

export const steps = {
  async "a reader who scrolled up is not pulled down by new text, and gets back with a button"() {
    await longChat();
    await me.ask(QUESTIONS.story);
    const story = me.at("message-assistant").last().locator(".text");
    await has(story, "dusk");
    const place = await scrollUp();
    await has(story, "doorman");
    assert.equal(await scrollTop(), place, "the reader is left alone");
    await has(me.at("below"), "The answer goes on below");
    await me.look("15-scrolled-up");
    await me.at("below").click();
    assert.ok(await isAtEnd());
    assert.equal(await me.at("below").isVisible(), false);
    await has(story, "on the stairs.");
    await me.status("idle");
    assert.ok(await isAtEnd(), "and new text is followed again");
  },

  async "a reader who scrolled up is told of a question, and is not pulled down to it"() {
    await longChat();
    const { held, open } = gate();
    await me.canned(question, held);
    await me.ask("Pay");
    const place = await scrollUp();
    open();
    await me.status("waiting");
    await has(me.at("below"), "A question waits for you");
    assert.equal(await scrollTop(), place);
    await me.at("below").click();
    assert.ok(await isInSight(me.at("approve")));
  },

  async "an error is scrolled into sight"() {
    await longChat();
    const { held, open } = gate();
    await me.canned([{ type: "RUN_ERROR", message: "the bank has burnt down" }], held);
    await me.ask("Pay");
    await scrollUp();
    open();
    await has(me.at("error"), "the bank has burnt down");
    assert.ok(await isInSight(me.at("error")));
  },

  async "the focus stays where the reader types"() {
    await me.newChat();
    const first = gate();
    await me.canned(question, first.held);
    await me.ask("Pay");
    await me.page.keyboard.type("And then");
    first.open();
    await me.status("waiting");
    await me.page.keyboard.type(" some more");
    assert.equal(await focused(), "input");
    assert.equal(await me.at("input").inputValue(), "And then some more");
    assert.ok(await isInSight(me.at("approve")), "the question is seen nevertheless");

    const second = gate();
    await me.canned([...says("b", "Paid."), finished], second.held);
    await me.at("approve").click();
    await me.at("show-all").focus();
    second.open();
    await me.status("idle");
    assert.equal(await focused(), "show-all", "nor is it taken from anything else in use");
  },

  async "a question gets the focus of a reader who waits"() {
    await me.newChat();
    await me.canned(question);
    await me.ask("Pay");
    await me.status("waiting");
    assert.equal(await focused(), "approval");
    await me.canned([...says("b", "Paid."), finished]);
    // From the card by keys alone: the arguments, then the button.
    await me.page.keyboard.press("Tab");
    assert.equal(await focused(), "approval-arguments");
    await me.page.keyboard.press("Tab");
    assert.equal(await focused(), "approve");
    await me.page.keyboard.press("Enter");
    await me.status("idle");
    assert.equal(await focused(), "input", "and goes back to where the next question is typed");
  },

  async "every control is reached with the keyboard, in the order that it is read, and is seen to have the focus"() {
    await me.newChat();
    await me.canned(question);
    await me.ask("Pay");
    await me.status("waiting");
    await me.page.locator("h1").click();
    const seen = [];
    for (;;) {
      await me.page.keyboard.press("Tab");
      const [name, isSeen] = await me.page.evaluate(() => {
        const element = document.activeElement;
        const hasOutline = (of) => of && getComputedStyle(of).outlineStyle !== "none" && parseFloat(getComputedStyle(of).outlineWidth) >= 1;
        return [element.dataset.testid ?? element.id ?? element.tagName, hasOutline(element) || hasOutline(element.closest("#box"))];
      });
      if (name === "" || seen.includes(name)) break;
      assert.ok(isSeen, `${name} has the focus, and that is not seen`);
      seen.push(name);
    }
    assert.deepEqual(seen, ["new-chat", "scroll", "approval-arguments", "approve", "approval-reason", "decline", "cancel", "input", "show-all", "timeline-scroll", "state-scroll"]);
  },
};
