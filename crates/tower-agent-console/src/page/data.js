// What an operator may do with what is kept of a run and of its user, and the record of who did what.

import { count, h, time } from "./dom.js";
import { get, post } from "./server.js";
import { go } from "./app.js";

/** Buttons that export and delete a run, and all runs of its user. */
export function managing(run, note) {
  const act = async (path, which) => {
    try {
      return await post(path, which);
    } catch (error) {
      note.textContent = error.message;
      return undefined;
    }
  };
  const save = async (which, name) => {
    const answer = await act("api/export", which);
    if (!answer) return;
    const file = URL.createObjectURL(new Blob([JSON.stringify(answer, null, 2)], { type: "application/json" }));
    h("a", { href: file, download: `${name.replace(/[^\w.-]/g, "_")}.json` }).click();
    URL.revokeObjectURL(file);
    note.textContent = "Exported.";
  };
  const remove = async (which, question) => {
    if (!await confirmed(question, "Delete")) return;
    if (await act("api/delete", which)) go("?");
  };
  const button = (label, onclick) => h("button", { type: "button", onclick }, label);
  return h("div", { class: "buttons" },
    button("Export", () => save({ run: run.id }, run.id)),
    button("Delete…", () => remove({ run: run.id }, "This run is deleted for good, with its texts.")),
    run.user && button("Export all of the user", () => save({ userOf: run.id }, "user")),
    run.user && button("Delete all of the user…", () => remove({ userOf: run.id }, `All runs of ${run.user} are deleted for good, with their texts.`)));
}

/** Asks before something is done that cannot be undone. */
function confirmed(question, label) {
  return new Promise((answer) => {
    const close = (value) => () => dialog.close(value);
    const dialog = h("dialog", { "aria-labelledby": "question", onclose: () => { dialog.remove(); answer(dialog.returnValue === "yes"); } },
      h("p", { id: "question" }, question),
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: close("no") }, "Keep"), h("button", { type: "button", class: "danger", onclick: close("yes") }, label)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A table of who has done what, with what fills it and what adds to it. */
export function auditTable() {
  const body = h("tbody");
  const table = h("table", { class: "audit" },
    h("thead", {}, h("tr", {}, ["At", "By", "What", "About", "Result"].map((head) => h("th", { scope: "col" }, head)))), body);
  const result = (status) => status === 202 ? "accepted" : status < 300 ? "done" : `refused (${status})`;
  const lines = (rows) => rows.map((row) => h("tr", {},
    h("td", {}, time(row.at)), h("td", {}, row.operator), h("td", {}, row.action), h("td", { class: "name" }, row.about), h("td", {}, result(row.status))));
  return [table, (rows) => body.replaceChildren(...lines(rows)), (rows) => body.append(...lines(rows))];
}

export async function showAudit(place) {
  const load = (before) => get(`api/audit?${new URLSearchParams({ limit: 200, before })}`);
  const [table, fill, add] = auditTable();
  let { rows, next, unstored, is_away: isAway } = await load("");
  fill(rows);
  const note = h("p", { class: "note", role: "status" }, [
    rows.length === 0 && "Nobody has answered, exported or deleted anything yet.",
    unstored && `${count(unstored, "row has", "rows have")} gone before the database took ${unstored === 1 ? "it" : "them"}.`,
    isAway && "The database does not answer: these are the rows in memory.",
  ].filter(Boolean).join(" "));
  const more = h("button", { type: "button", hidden: !next, onclick: async () => {
    ({ rows, next } = await load(next));
    add(rows);
    more.hidden = !next;
  } }, "Older rows");
  place.append(h("h1", {}, "Audit"), ...(rows.length ? [table] : []), note, more);
}
