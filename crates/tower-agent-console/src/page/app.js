// Which view the address asks for, and the way from one to the next.

import { h } from "./dom.js";
import { get } from "./server.js";
import { showRuns } from "./runs.js";
import { showRun } from "./run.js";
import { showBeside } from "./beside.js";
import { showAgents } from "./stack.js";
import { showInbox } from "./inbox.js";
import { showAudit } from "./data.js";
import { showDurable } from "./durable.js";
import { showLimits } from "./limits.js";

const main = document.getElementById("main");
let leave = () => {};
let turn = 0;

const parameters = () => Object.fromEntries(new URLSearchParams(location.search));

/** Changes the address without leaving the view. */
export function remember(changes) {
  const address = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === "") address.delete(name);
    else address.set(name, value);
  }
  history.replaceState(null, "", `?${address}`);
}

async function show() {
  const own = ++turn;
  leave();
  leave = () => {};
  const wanted = parameters();
  const view = wanted.run !== undefined ? "runs" : (wanted.view ?? "runs");
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const views = { runs: showRuns, agents: showAgents, limits: showLimits, durable: showDurable, inbox: showInbox, audit: showAudit };
  const draw = wanted.run !== undefined ? (wanted.beside === undefined ? showRun : showBeside) : (views[view] ?? showRuns);
  const place = h("div", { class: "view" });
  try {
    const end = await draw(place, wanted, await who);
    if (own !== turn) return end?.();
    leave = end ?? leave;
  } catch (error) {
    if (own !== turn) return;
    place.replaceChildren(h("h1", {}, "This cannot be shown"), h("p", { class: "note bad", role: "alert" }, error.message), h("p", {}, h("a", { href: "?" }, "All runs")));
  }
  main.replaceChildren(place);
  document.title = `${place.querySelector("h1")?.textContent ?? "Runs"} · Console`;
}

/** Goes to another view by a link of the page, which the browser would load anew. */
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='?']");
  if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});

export function go(address) {
  history.pushState(null, "", address);
  show().then(() => { main.focus(); scrollTo(0, 0); });
}

addEventListener("popstate", show);

const who = get("api/me");
who.then((me) => {
  document.querySelector("[data-view=inbox]").hidden = !me.mayAnswer;
  document.querySelector("[data-view=durable]").hidden = !me.hasDurable;
}, () => {});
show();
