// Servers that die, refuse, or were never there.

import assert from "node:assert/strict";
import { Person, QUESTIONS, base, calls, command, finished, has, isInSight, says } from "./browser.mjs";
import { me } from "./answers.mjs";
import { startProxy, startServer } from "./servers.mjs";

const texts = (person) => person.at("message-assistant").locator(".text").allTextContents();
const LOST = "The connection to the server was lost before the answer was finished.";

/** Told in words, in sight, and the half answer marked. */
async function isTold(person, words) {
  await has(person.at("error"), words);
  await person.status("failed");
  assert.ok(await isInSight(person.at("error")));
  assert.equal(await person.at("unfinished").count(), 1);
  assert.ok(await person.at("send").isEnabled(), "something else can be asked");
}

/** The whole story, once, to one question. */
async function isWhole(person) {
  await person.status("idle");
  assert.equal(await person.at("message-user").count(), 1, "the question is not said twice");
  assert.match((await texts(person)).join("|"), /^[^|]+on the stairs\.$/, "one answer, to its end");
  assert.equal(await person.at("unfinished").count(), 0);
  assert.equal(await person.at("error").count(), 0);
}

/** Each has a page of its own. */
export const apart = {
  async "a server that dies in the middle of an answer is told, and asked again once it is back"() {
    assert.ok(command.length, "a command that starts a server");
    const server = await startServer();
    const person = await Person.at(server.url, { colorScheme: "light" });
    await person.ask(QUESTIONS.story);
    await has(person.at("message-assistant"), "doorman");
    await server.kill();
    await isTold(person, LOST);
    await person.wasTold(/ERR_/);
    await person.look("16-died");

    const [half] = await texts(person);
    await person.at("try-again").click();
    await isTold(person, "The server cannot be reached. It may have stopped.");
    await person.wasTold(/ERR_CONNECTION_REFUSED/);
    assert.deepEqual(await texts(person), [half], "the half answer is kept until there is a better one");
    await person.look("17-unreachable");

    const next = await startServer(server.port);
    await person.at("try-again").click();
    await isWhole(person);
    await person.look("18-back");
    await person.leave();
    await next.kill();
  },

  async "a server that freezes is told, in the middle of an answer and before it"() {
    const server = await startServer();
    const person = await Person.at(server.url);
    await person.page.clock.install();
    await person.page.reload();
    await person.ask(QUESTIONS.story);
    await has(person.at("message-assistant"), "doorman");
    server.freeze();
    await person.page.clock.fastForward(44_000);
    await person.status("running");
    await person.page.clock.fastForward(46_000);
    await isTold(person, "The server has been silent for 45 seconds. It may have stopped.");
    const request = person.page.waitForRequest("**/agent");
    await person.at("try-again").click();
    await request;
    await person.status("running");
    await person.page.clock.fastForward(46_000);
    await isTold(person, "The server has been silent for 45 seconds.");
    await person.leave();
    await server.kill();
  },

  async "a connection that is cut is told, and the question asked again"() {
    await Promise.all(["cut", "end"].map(async (how) => {
      const proxy = await startProxy(base);
      const person = await Person.at(proxy.url);
      proxy.next = { how, after: "doorman" };
      await person.ask(QUESTIONS.story);
      await isTold(person, LOST);
      if (how === "cut") await person.wasTold(/ERR_INCOMPLETE_CHUNKED_ENCODING/);
      await person.at("try-again").click();
      await isWhole(person);
      await person.leave();
      proxy.close();
    }));
  },

  async "an answer that arrived, although the page was not told, is not given again"() {
    const proxy = await startProxy(base);
    const person = await Person.at(proxy.url);
    await person.ask(QUESTIONS.remove);
    await person.status("waiting");
    proxy.next = { how: "late", after: "RUN_STARTED" };
    await person.at("approve").click();
    await has(person.at("error"), LOST);
    await person.wasTold(/ERR_INCOMPLETE_CHUNKED_ENCODING/);
    await person.at("try-again").click();
    await has(person.at("error"), "The question is no longer open. It was answered already");
    await person.wasTold(/409/);
    await person.at("set-aside").click();
    assert.equal(await person.card("delete_file").getAttribute("data-phase"), "no result");
    await person.ask(QUESTIONS.sum);
    await person.status("idle");
    assert.match(await person.lastText(), /122/, "the conversation goes on");
    await person.leave();
    proxy.close();
  },

  async "a question is answered once, from whichever page"() {
    const [one, two] = [await Person.at(base), await Person.at(base)];
    await one.ask(QUESTIONS.remove);
    await one.status("waiting");
    await one.page.evaluate(() => dispatchEvent(new Event("pagehide")));
    const kept = await one.page.evaluate(() => ({ ...sessionStorage }));
    await one.page.evaluate(() => dispatchEvent(new Event("pageshow")));
    await two.page.evaluate((kept) => { dispatchEvent(new Event("pagehide")); Object.assign(sessionStorage, kept); }, kept);
    await two.page.reload();
    await two.status("waiting");
    await one.at("approve").click();
    await one.status("idle");
    await two.at("approve").click();
    await has(two.at("error"), "The question is no longer open.");
    assert.equal(await two.at("try-again").count(), 0, "that would be of no use");
    await two.wasTold(/409/);
    await two.look("21-answered-elsewhere");
    await one.leave();
    await two.leave();
  },

  async "a server that has forgotten the question refuses its answer, and the chat goes on"() {
    const server = await startServer();
    const person = await Person.at(server.url);
    await person.ask(QUESTIONS.remove);
    await person.status("waiting");
    await server.kill();
    const next = await startServer(server.port);
    await person.at("approve").click();
    await has(person.at("error"), "The question is no longer open.");
    await person.wasTold(/409/);
    await person.look("22-forgotten");
    assert.deepEqual(await person.files(), ["notes.txt", "old.txt", "plan.md"], "nothing has happened");
    await person.at("set-aside").click();
    await person.ask(QUESTIONS.remove);
    await person.at("approve").click();
    await person.status("idle");
    assert.deepEqual(await person.files(), ["old.txt", "plan.md"]);
    await person.leave();
    await next.kill();
  },

  async "a page that is left in the middle of an answer says so when it is back"() {
    const person = await Person.at(base);
    await person.ask(QUESTIONS.story);
    await has(person.at("message-assistant"), "doorman");
    await person.page.reload();
    await isTold(person, "The page was left before the answer was finished.");
    await person.at("try-again").click();
    await isWhole(person);
    await person.leave();
  },
};

export const steps = {
  async "a half answer stays when something else is asked, and is told as it is"() {
    await me.newChat();
    await me.canned([...says("a", "Let me see."), ...calls("c1", "look", '{"at":"').slice(0, 2)]);
    await me.ask("Look");
    await isTold(me, LOST);
    assert.equal(await me.at("tool-card").getAttribute("data-phase"), "no result");
    const sent = await me.canned([...says("b", "Here."), finished]);
    await me.ask("Once more");
    await me.status("idle");
    const { messages } = (await sent.request).postDataJSON();
    assert.deepEqual(messages.map(({ role, content }) => `${role}: ${content}`), ["user: Look", "assistant: Let me see.", "user: Once more"]);
    assert.ok(await me.at("unfinished").first().isVisible());
  },

  async "what has run is not asked for again"() {
    await me.newChat();
    await me.canned([
      ...says("a", "I pay."), ...calls("c1", "pay", "{}"), { type: "TOOL_CALL_RESULT", messageId: "r1", toolCallId: "c1", content: "paid" },
      ...says("b", "I have pa").slice(0, 2),
    ]);
    await me.ask("Pay");
    await isTold(me, LOST);
    const sent = await me.canned([...says("c", "I have paid."), finished]);
    await me.at("try-again").click();
    await me.status("idle");
    const { messages } = (await sent.request).postDataJSON();
    assert.deepEqual(messages.map(({ role, content }) => `${role}: ${content}`), ["user: Pay", "assistant: I pay.", "tool: paid"]);
    assert.deepEqual(await texts(me), ["I pay.", "I have paid."]);
  },

  async "a run that fails is told, and asked again on demand"() {
    await me.newChat();
    await me.canned([...says("a", "Half of").slice(0, 2), { type: "RUN_ERROR", message: "the model is overloaded", code: "overloaded" }]);
    await me.ask(QUESTIONS.sum);
    await isTold(me, "The run failed: the model is overloaded");
    await has(me.at("error"), "overloaded");
    await me.look("19-failed");
    await me.at("try-again").click();
    await me.status("idle");
    assert.equal(await me.at("message-user").count(), 1);
    assert.match(await me.lastText(), /122/);
    assert.doesNotMatch((await texts(me)).join(), /Half of/);
  },

  async "a server that refuses or fails is quoted, and asked again on demand"() {
    for (const [status, contentType, body, words] of [
      [400, "application/json", '{"error":{"message":"the input is not understood","path":"messages[0]"}}', "The server refused this: the input is not understood"],
      [409, "application/json", '{"error":{"code":"busy","message":"run r1 works on thread t1"}}', "The server is still at work on this chat."],
      [429, "text/plain", "not so fast", "The server refused this: not so fast"],
      [500, "application/json", '{"error":{"message":"out of memory"}}', "The server failed: out of memory"],
      [502, "text/html", "<html><h1>Bad Gateway</h1></html>", "The server failed: Bad Gateway"],
      [200, "text/html", "<html>Log in first</html>", "The server answered with something else than events."],
      [200, "text/event-stream", "data: {nothing\n\n", "The server sent something that cannot be read."],
    ]) {
      await me.newChat();
      await me.nextRun(() => ({ status, contentType, body }));
      await me.ask(QUESTIONS.sum);
      await has(me.at("error"), words);
      await me.status("failed");
      assert.doesNotMatch(await me.at("error").textContent(), /<html>/);
      if (status !== 200) {
        await has(me.at("error"), `HTTP ${status}`);
        await me.wasTold(new RegExp(status));
      }
      if (status === 400) await me.look("20-refused-by-server");
      await me.canned([...says("a", "Now it works."), finished]);
      await me.at("try-again").click();
      await me.status("idle");
      assert.equal(await me.at("message-user").count(), 1);
      assert.equal(await me.lastText(), "Now it works.");
    }
  },
};
