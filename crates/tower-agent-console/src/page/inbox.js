// The questions that wait for a person, and who has answered which.

import { facts, h, time } from "./dom.js";
import { auditTable } from "./data.js";
import { get, post } from "./server.js";

export async function showInbox(place, _, me) {
  place.append(h("h1", {}, "Inbox"));
  if (!me.mayAnswer) {
    place.append(h("p", { class: "note" }, "There is no inbox here for you: an operator needs a role that questions are for."));
    return undefined;
  }
  const note = h("p", { class: "note", role: "status" });
  const list = h("div", { class: "questions" });
  const [audit, fill] = auditTable();
  const cards = new Map();

  async function look() {
    const questions = [];
    for (let after = ""; after !== undefined;) {
      const page = await get(`api/inbox?${new URLSearchParams({ after })}`);
      questions.push(...page.questions);
      after = page.next;
    }
    const name = ({ key, id }) => JSON.stringify([key, id]);
    const open = new Set(questions.map(name));
    for (const [known, card] of cards) if (!open.has(known)) { card.remove(); cards.delete(known); }
    for (const question of questions) {
      if (cards.has(name(question))) continue;
      const card = draw(question);
      cards.set(name(question), card);
      list.append(card);
    }
    if (!questions.length && !note.textContent) note.textContent = "Nothing waits.";
    const { rows } = await get("api/audit?limit=200");
    const answers = rows.filter(({ action }) => action === "answer").slice(0, 100);
    fill(answers);
    history.hidden = !answers.length;
  }

  async function answer({ key, id }, read) {
    try {
      await post("api/inbox", { key, id, answer: read() });
      note.textContent = "Answered.";
    } catch (error) {
      note.textContent = error.message;
    }
    await look().catch(() => {});
  }

  function draw(question) {
    const { payload, role, message, reason, key, askedAt, expiresAt, responseSchema } = question;
    const isApproval = responseSchema?.properties?.approved !== undefined;
    const shown = payload?.tool === undefined ? payload : payload.arguments;
    const field = h("textarea", { rows: isApproval ? 2 : 4 });
    const send = (label, kind, read) => h("button", { type: "button", class: kind, onclick: () => answer(question, read) }, label);
    return h("article", {},
      h("h2", {}, payload?.tool ?? message ?? reason),
      facts([["For", role], ["User", key.user], ["Conversation", key.id], ["Server", key.app], ["Asked", time(askedAt * 1000)], ["Until", expiresAt && time(expiresAt * 1000)]]),
      payload?.tool && message ? h("p", {}, message) : null,
      shown === undefined || shown === null ? null : h("pre", {}, JSON.stringify(shown, null, 2)),
      h("label", {}, isApproval ? "Reason, if declined" : "Answer, as JSON", field),
      h("div", { class: "buttons" }, isApproval
        ? [send("Approve", "primary", () => ({ approved: true })), send("Decline", "", () => ({ approved: false, ...(field.value && { reason: field.value }) }))]
        : send("Answer", "primary", () => JSON.parse(field.value))));
  }

  const history = h("section", { hidden: true }, h("h2", {}, "Answers"), audit);
  place.append(note, list, history);
  await look();
  const timer = setInterval(() => look().catch((error) => { note.textContent = error.message; }), 2000);
  return () => clearInterval(timer);
}
