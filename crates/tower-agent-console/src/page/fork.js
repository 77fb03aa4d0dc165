// A run that goes on from a step of this one, with changes.

import { h } from "./dom.js";
import { get, post } from "./server.js";
import { go } from "./app.js";

/** The step at an entry, counted by model calls: before a call, and at the end of the outermost agent. */
export function stepOf(entry, entries) {
  const calls = entries.filter((other) => other?.kind === "model");
  if (entry.kind === "model") return calls.filter(({ n }) => n < entry.n).length;
  return entry.kind === "agent" && entry.caller === null ? calls.length : undefined;
}

/** A button that becomes a form. */
export function forking(run, entry, entries) {
  const step = stepOf(entry, entries);
  if (step === undefined) return [];
  const address = `api/runs/${encodeURIComponent(run)}/fork/${step}`;
  const note = h("p", { class: "note", role: "status" });
  const place = h("section", { class: "questions" });
  const open = h("button", { type: "button", onclick: () => show().catch(tell) }, entry.kind === "model" ? "Fork before this call" : "Fork from the end");
  const tell = (error) => { note.textContent = error.message; };

  async function show() {
    const { agent, messages, instructions, settings } = await get(address);
    const json = (value) => JSON.stringify(value, null, 2);
    const area = (value, rows) => { const field = h("textarea", { rows, spellcheck: "false" }); field.value = value; return field; };
    const all = area(json(messages), 10);
    const own = area(instructions ?? "", 4);
    const set = area(json(settings ?? {}), 4);
    const more = area("", 2);
    const send = async () => {
      // What was not changed is left out, and stays as it is in every part.
      await post(address, {
        ...(all.value !== json(messages) && { messages: JSON.parse(all.value) }),
        ...(own.value !== (instructions ?? "") && { instructions: own.value }),
        ...(set.value !== json(settings ?? {}) && { settings: JSON.parse(set.value) }),
        ...(more.value && { message: more.value }),
      }).then(({ run: id }) => go(`?${new URLSearchParams({ run: id })}`));
    };
    note.textContent = "";
    open.hidden = true;
    place.append(h("article", {},
      h("p", { class: "note" }, "A new run. Tools that change something are answered from this one; what it has not called waits in the inbox."),
      h("label", {}, "Messages, as JSON", all),
      h("label", {}, `Instructions of ${agent}`, own),
      h("label", {}, "Its settings, as JSON, with the model", set),
      h("label", {}, "One more message", more),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "primary", onclick: () => send().catch(tell) }, "Fork"),
        h("button", { type: "button", onclick: () => { place.replaceChildren(); open.hidden = false; open.focus(); } }, "Cancel"))));
    more.focus();
  }

  return [h("div", { class: "buttons" }, open), place, note];
}
