// Budgets, limits and breakers, as they stand.

import { badge, h, number, span } from "./dom.js";
import { get } from "./server.js";

export async function showLimits(place) {
  const body = h("tbody");
  const note = h("p", { class: "note", role: "status" });
  let shown;

  async function look() {
    const gauges = await get("api/limits");
    const now = JSON.stringify(gauges);
    if (now === shown) return;
    shown = now;
    body.replaceChildren(...gauges.flatMap(({ name, readings, is_away: isAway }) => isAway
      ? [row(name, { state: "cannot be read", kind: "", amounts: [] })]
      : readings.map((reading) => row(name, reading))));
    const cut = gauges.filter(({ has_more: hasMore }) => hasMore).map(({ name }) => name);
    note.textContent = cut.length ? `There are more of ${cut.join(", ")}: these are the ones that matter most.` : "";
    table.hidden = !gauges.length;
    none.hidden = gauges.length > 0;
  }

  const heads = ["Limit", "State", "Kind", "Of", "Numbers"];
  const table = h("table", { class: "runs limits" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), body);
  const none = h("p", { class: "note" }, "The program shows none: ", h("code", {}, "console.show(\"daily budget\", account)"), " shows one here, with what is left of it.");
  place.append(h("div", { class: "top" }, h("h1", {}, "Limits")), table, none, note);
  await look();
  const timer = setInterval(() => look().catch((error) => { note.textContent = error.message; }), 2000);
  return () => clearInterval(timer);
}

function row(gauge, { kind, state, admits, of, name, amounts }) {
  const cell = (head, attributes, ...children) => h("td", { "data-head": head, ...attributes }, ...children);
  return h("tr", {},
    cell("Limit", {}, gauge, name && [": ", h("span", { class: "name" }, name)]),
    cell("State", {}, badge(state, admits ? "good" : "bad")),
    cell("Kind", {}, kind),
    cell("Of", { class: "name" }, of),
    cell("Numbers", {}, h("ul", { class: "amounts" }, amounts.map((amount) => h("li", {}, h("span", { class: "quiet" }, amount.name), " ", h("span", { class: "number" }, shownAmount(amount)))))));
}

function shownAmount({ value, limit, unit }) {
  // A number that is none, or has no end, is no JSON.
  const one = (value) => value === null ? "∞" : unit === "s" ? span(value * 1e6) : number(value);
  const shown = limit === undefined ? one(value) : `${one(value)} of ${one(limit)}`;
  return unit && unit !== "s" ? `${shown} ${unit}` : shown;
}
