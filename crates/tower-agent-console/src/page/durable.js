// Durable runs: those that wait, run, are lost or have ended, also in other processes.

import { h, status, time, words } from "./dom.js";
import { get, post } from "./server.js";
import { go } from "./app.js";

const STATES = ["running", "lost", "waiting", "failed", "completed", "cancelled"];

export async function showDurable(place, { agent = "", status: state = "", before = "" }) {
  const address = (changes) => `?${new URLSearchParams(Object.entries({ view: "durable", agent, status: state, ...changes }).filter(([, value]) => value))}`;
  const note = h("p", { class: "note", role: "status" });
  const body = h("tbody");
  const links = h("p", { class: "note" });
  const filter = h("form", { class: "filter", role: "search", onsubmit: (event) => { event.preventDefault(); narrow(); }, onchange: () => narrow() },
    h("label", {}, "Agent", h("input", { name: "agent", value: agent, autocomplete: "off" })),
    h("label", {}, "Status", h("select", { name: "status" },
      h("option", { value: "" }, "any"),
      STATES.map((name) => h("option", { value: name, selected: name === state }, name)))));
  function narrow() {
    const wanted = Object.fromEntries(new FormData(filter));
    if (wanted.agent !== agent || wanted.status !== state) go(address(wanted));
  }

  let shown;
  async function look() {
    const page = await get(`api/durable?${new URLSearchParams({ agent, status: state, before })}`);
    const now = JSON.stringify(page);
    if (now === shown) return;
    shown = now;
    // A button that is drawn anew keeps the focus.
    const focused = document.activeElement?.dataset?.place;
    body.replaceChildren(...page.runs.map((run) => row(run, resume)));
    body.querySelector(`[data-place="${CSS.escape(focused ?? "")}"]`)?.focus();
    links.replaceChildren(...[
      before && h("a", { href: address({}) }, "Latest runs"), before && page.next && " · ",
      page.next && h("a", { href: address({ before: page.next }) }, "Older runs")].filter(Boolean));
    table.hidden = !page.runs.length;
    if (!page.runs.length) note.textContent = agent || state || before ? "No durable run is like this." : "No durable run yet.";
  }

  async function resume(run) {
    try {
      await post("api/durable/resume", { place: run.place });
      note.textContent = `${run.id} goes on.`;
    } catch (error) {
      note.textContent = error.message;
    }
    await look().catch(() => {});
  }

  const heads = ["Begun", "Status", "Agent", "Run", "User", "Version", "Last sign of life", "Do"];
  const table = h("table", { class: "runs durable" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), body);
  place.append(h("div", { class: "top" }, h("h1", {}, "Durable runs"), filter), table, note, links);
  await look();
  const timer = setInterval(() => look().catch((error) => { note.textContent = error.message; }), 5000);
  return () => clearInterval(timer);
}

function row(run, resume) {
  const cell = (head, attributes, ...children) => h("td", { "data-head": head, ...attributes }, ...children);
  const detail = run.error ? words(run.error) : run.waits_for.length ? `for ${run.waits_for.join(", ")}` : "";
  return h("tr", {},
    cell("Begun", {}, run.run ? h("a", { href: `?${new URLSearchParams({ run: run.run })}` }, time(run.begun)) : time(run.begun)),
    cell("Status", {}, status(run.status), detail && [" ", h("span", { class: "quiet" }, detail)]),
    cell("Agent", { class: "name" }, run.agent),
    cell("Run", { class: "name" }, run.id),
    cell("User", { class: "name" }, run.user),
    cell("Version", {}, run.version),
    cell("Last sign of life", {}, time(run.updated)),
    cell("Do", {}, run.may_resume && h("div", { class: "buttons" }, h("button", { type: "button", "data-place": run.place, onclick: () => resume(run) }, "Resume"))));
}
