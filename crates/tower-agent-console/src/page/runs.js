// The list of runs.

import { badge, count, dollars, h, span, status, time, tokens, words } from "./dom.js";
import { follow, get } from "./server.js";
import { go } from "./app.js";

const STATES = ["running", "completed", "waiting", "failed", "cancelled", "unfinished"];

export async function showRuns(place, { agent = "", status: state = "" }) {
  const query = (before) => `api/runs?${new URLSearchParams({ agent, status: state, ...(before && { before }) })}`;
  const rows = new Map();
  const body = h("tbody");
  const note = h("p", { class: "note", role: "status" });
  const more = h("button", { type: "button", hidden: true }, "Older runs");
  let next;

  const selects = (run) => (!state || run.status === state) && (!agent || run.agent === agent || run.agent.split("/").at(-1) === agent);

  function put(run) {
    const known = rows.get(run.id);
    if (!selects(run)) {
      known?.row.remove();
      rows.delete(run.id);
      return;
    }
    if (known) return known.fill(run);
    const made = row(run);
    rows.set(run.id, made);
    // In the order of their begin, as the server lists them.
    const isOlder = ({ dataset: { begun, number } }) => begun - run.begun || number - run.number;
    const before = [...body.children].find((other) => isOlder(other) < 0);
    body.insertBefore(made.row, before ?? null);
  }

  function tell({ gone, left_out: leftOut, unstored, is_away: isAway }) {
    const told = [
      !rows.size && (agent || state ? "No run is like this." : "No run yet. It appears here when a watched agent is called."),
      gone && `${count(gone, "older run has", "older runs have")} gone to make room.`,
      leftOut && `${count(leftOut, "event was", "events were")} left out.`,
      unstored && `${count(unstored, "run has", "runs have")} gone before the database took ${unstored === 1 ? "it" : "them"}.`,
      isAway && "The database does not answer: these are the runs in memory.",
    ];
    note.textContent = told.filter(Boolean).join(" ");
  }

  async function load(before) {
    const page = await get(query(before));
    for (const run of page.runs) put(run);
    next = page.next;
    more.hidden = !next;
    tell(page);
    return page;
  }

  more.addEventListener("click", () => load(next));
  const filter = h("form", { class: "filter", role: "search", onsubmit: (event) => { event.preventDefault(); narrow(); }, onchange: () => narrow() },
    h("label", {}, "Agent", h("input", { name: "agent", value: agent, autocomplete: "off" })),
    h("label", {}, "Status", h("select", { name: "status" },
      h("option", { value: "" }, "any"),
      STATES.map((name) => h("option", { value: name, selected: name === state }, name)))));
  function narrow() {
    const wanted = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value));
    if (String(wanted) !== String(new URLSearchParams({ ...(agent && { agent }), ...(state && { status: state }) }))) go(`?${wanted}`);
  }

  const heads = ["Run", "Status", "Agent", "Time", "Tokens", "Calls", "Decided by", "User"];
  place.append(
    h("div", { class: "top" }, h("h1", {}, "Runs"), filter),
    h("table", { class: "runs" },
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      body),
    note, more);
  const { cursor } = await load();
  return follow(undefined, cursor, async (all, isReset) => {
    if (isReset) {
      rows.clear();
      body.replaceChildren();
      await load();
      return;
    }
    for (const { removed, runs } of all) {
      for (const id of removed) {
        rows.get(id)?.row.remove();
        rows.delete(id);
      }
      for (const run of runs) put(run);
    }
    tell(all.at(-1));
  }, () => {});
}

/** A row, and what brings it up to date without taking the focus from it. */
function row(run) {
  const link = h("a", { href: `?${new URLSearchParams({ run: run.id })}` }, time(run.begun));
  const cells = {
    Run: h("td", {}, link),
    Status: h("td"), Agent: h("td", { class: "name" }), Time: h("td", { class: "number" }), Tokens: h("td", { class: "number" }),
    Calls: h("td", { class: "number" }), "Decided by": h("td"), User: h("td", { class: "name" }),
  };
  for (const [name, cell] of Object.entries(cells)) cell.dataset.head = name;
  const element = h("tr", { "data-number": run.number, "data-begun": run.begun }, Object.values(cells));
  const fill = (now) => {
    cells.Status.replaceChildren(status(now.status), ...(now.error && now.status === "failed" ? [" ", h("span", { class: "quiet" }, words(now.error))] : []),
      ...(now.waits_for.length ? [" ", h("span", { class: "quiet" }, `for ${now.waits_for.join(", ")}`)] : []));
    cells.Agent.textContent = now.agent;
    cells.Time.textContent = now.ended ? span(now.ended - now.begun) : "";
    cells.Tokens.textContent = [tokens(now.usage), dollars(now.cost)].filter(Boolean).join(", ");
    cells.Calls.replaceChildren(`${now.model_calls} + ${now.tool_calls}`, ...(now.failed_attempts ? [" ", badge(count(now.failed_attempts, "retry", "retries"), "warn")] : []));
    cells.Calls.title = `${count(now.model_calls, "model call", "model calls")}, ${count(now.tool_calls, "tool call", "tool calls")}`;
    cells["Decided by"].textContent = now.decided_by.join(", ");
    cells.User.textContent = now.user ?? "";
  };
  fill(run);
  return { row: element, fill };
}
