// One run: its agents, turns and calls as a tree over time, and what stands around each call.

import { badge, count, dollars, facts, h, span, status, time, tokens, words } from "./dom.js";
import { follow, get } from "./server.js";
import { go, remember } from "./app.js";
import { managing } from "./data.js";
import { marked } from "./diff.js";
import { forking } from "./fork.js";
import { longList } from "./list.js";
import { cachedPrefix, part, prefixEnds } from "./prefix.js";
import { around, find, isNothing, made, stack } from "./stack.js";

/** The number of entries that are waited for before the others. */
const FIRST = 200;

export async function showRun(place, { run: id, at }, me) {
  const address = `api/runs/${encodeURIComponent(id)}`;
  const [explanations, first] = await Promise.all([get("api/agents"), entriesOf(id, 0, FIRST)]);
  const entries = first.entries;
  let { run, cursor } = first;
  const folded = new Set();
  let selected = at === undefined ? undefined : Number(at);
  const head = h("div");
  const note = h("p", { class: "note", role: "status" });
  const beside = h("form", { class: "filter", hidden: true, onsubmit: (event) => { event.preventDefault(); go(`?${new URLSearchParams({ run: run.id, beside: new FormData(beside).get("beside") })}`); } },
    h("label", {}, "Another run of this agent", h("select", { name: "beside" })),
    h("div", { class: "buttons" }, h("button", {}, "Show beside")));
  // Until when the bars go.
  let end;
  const tree = longList("Calls", {
    name: ({ entry }) => entry.n,
    isSame: (known, now) => known.entry === now.entry && known.depth === now.depth && known.children === now.children
      && known.isFolded === now.isFolded && known.notes.length === now.notes.length,
    text: said,
    draw: row,
  });
  tree.select(selected);
  tree.element.addEventListener("keydown", fold);
  const detail = h("section", { class: "detail", "aria-label": "Details", tabindex: "0" });

  async function load() {
    const all = await loadRun(id);
    ({ run, cursor } = all);
    entries.splice(0, entries.length, ...all.entries);
  }

  function drawHead() {
    const now = run.ended ?? Date.now() * 1000;
    head.replaceChildren(
      h("p", { class: "path" }, h("a", { href: "?" }, "Runs"), " / ", h("code", {}, run.id)),
      h("h1", {}, run.agent, " ", status(run.status)),
      facts([
        ["Begun", time(run.begun)], ["Time", run.ended ? span(now - run.begun) : words(run.status)], ["Last heard of", run.heard && time(run.heard)], ["Tokens", tokens(run.usage)], ["Cost", dollars(run.cost)],
        ["Calls", `${count(run.model_calls, "model call", "model calls")}, ${count(run.tool_calls, "tool call", "tool calls")}`],
        ["Failed attempts", run.failed_attempts || null], ["Error", run.error && words(run.error)], ["Waits for", run.waits_for.join(", ")],
        ["Decided by", run.decided_by.join(", ")], ["User", run.user], ["Conversation", run.conversation],
        ["Left out", run.left_out ? count(run.left_out, "event or text", "events or texts") : null],
        ["Fork of", run.fork_of && link(run.fork_of.run, `${run.fork_of.run}, step ${run.fork_of.step}`)],
        ["Forks", run.forks?.map((id) => [link(id, id), " "])],
      ]),
      run.heard ? h("p", { class: "note" }, "It had not ended when its process wrote this: the process is still at it, or is gone.") : "",
      me.maySave && run.ended ? h("p", {}, h("a", { href: `${address}/recording`, download: "recording.json" }, "Save as recording")) : "");
  }

  const link = (id, text) => h("a", { href: `?${new URLSearchParams({ run: id })}` }, text);

  function drawTree() {
    const lines = flatten(entries);
    const before = end;
    end = run.begun + scale(lines);
    if (end !== before) for (const { item, element } of tree.drawn()) drawBar(element.lastChild, item.entry);
    let hiddenBelow = Infinity;
    tree.show(lines.filter((line) => {
      if (line.depth > hiddenBelow) return false;
      line.isFolded = line.children > 0 && folded.has(line.entry.n);
      hiddenBelow = line.isFolded ? line.depth : Infinity;
      return true;
    }));
  }

  /** The time that the bars show. Of a run that goes on it grows in steps, so that most changes leave most bars alone. */
  function scale(lines) {
    if (run.ended || run.heard) return (run.ended ?? run.heard) - run.begun;
    const last = lines.reduce((latest, { entry }) => Math.max(latest, entry.end ?? entry.at), run.begun);
    return 1.5 ** Math.ceil(Math.log(Math.max(1000, last - run.begun)) / Math.log(1.5));
  }

  function drawBar(bar, entry) {
    const all = Math.max(1, end - run.begun);
    const from = Math.min(100, Math.max(0, (entry.at - run.begun) / all * 100));
    const stop = entry.end ?? (isMoment(entry) ? entry.at : end);
    const width = Math.min(100 - from, Math.max(0, (stop - entry.at) / all * 100));
    // Attributes of style are no part of the policy; properties are.
    bar.firstChild.style.left = `${Math.min(from, 99)}%`;
    bar.firstChild.style.width = `max(3px, ${width}%)`;
  }

  function row({ entry, depth, children, notes, isFolded }) {
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("i"));
    const pick = h("button", { type: "button", class: "pick", onclick: () => select(entry.n) },
      h("span", { class: `kind ${entry.kind}` }, words(entry.kind)), h("span", { class: "name" }, title(entry)), badges(entry, notes));
    const item = h("div", { class: "row" },
      children
        ? h("button", { type: "button", class: "fold", "aria-expanded": String(!isFolded), "aria-label": `${isFolded ? "Unfold" : "Fold"} ${words(entry.kind)} ${title(entry)}`, onclick: () => { if (!folded.delete(entry.n)) folded.add(entry.n); drawTree(); } }, isFolded ? "▸" : "▾")
        : h("span", { class: "fold" }),
      pick,
      h("span", { class: "tokens number" }, tokens(used(entry))),
      h("span", { class: "number" }, entry.end ? (entry.end > entry.at && span(entry.end - entry.at)) : isMoment(entry) ? "" : "…"),
      bar);
    drawBar(bar, entry);
    item.style.setProperty("--depth", Math.min(depth, 12));
    return item;
  }

  function fold(event) {
    const button = event.target.closest(".row")?.querySelector("button.fold");
    const isOpen = { true: "ArrowLeft", false: "ArrowRight" }[button?.getAttribute("aria-expanded")];
    if (event.key !== isOpen) return;
    button.click();
    event.preventDefault();
  }

  async function select(n) {
    selected = n;
    known.clear();
    remember({ at: n });
    tree.select(n);
    await drawDetail();
    // On a narrow page it is below the tree.
    if (matchMedia("(max-width: 60rem)").matches) { detail.focus(); detail.scrollIntoView(); }
  }

  /** Offers the latest runs of the same agent, to look at one beside this one. */
  async function choose() {
    const { runs } = await get(`api/runs?${new URLSearchParams({ agent: run.agent })}`).catch(() => ({ runs: [] }));
    const others = runs.filter((other) => other.id !== run.id);
    const shown = (other) => `${time(other.begun).textContent} ${other.status} ${other.id.slice(0, 24)}`;
    beside.hidden = !others.length;
    beside.querySelector("select").append(...others.map((other) => h("option", { value: other.id }, shown(other))));
  }

  let drawing = 0;
  async function drawDetail() {
    const own = ++drawing;
    const entry = entries[selected];
    if (!entry) return detail.replaceChildren(h("p", { class: "note" }, "Choose a call to see what stands around it, and what each part has done."));
    const parts = describe(entry, entries, explanations);
    if (me.seesContent) parts.push(...await changed(entry));
    if (entry.content && me.seesContent) parts.push(...await texts(entry));
    else if (entry.content) parts.push(h("p", { class: "note" }, `Its texts (${count(entry.content, "byte", "bytes")}) are not shown to you.`));
    if (me.mayFork && (run.ended || run.heard)) parts.push(...forking(id, entry, entries));
    if (own === drawing) detail.replaceChildren(...parts);
  }

  // The texts of what is selected: an entry that has changed is another object.
  const known = new Map();
  function content(entry) {
    if (!known.has(entry)) {
      const asked = get(`${address}/content/${entry.n}`);
      known.set(entry, asked);
      asked.catch(() => known.delete(entry));
    }
    return known.get(entry);
  }

  /** What the wrappers of a call changed in its texts. */
  async function changed(entry) {
    const wrappers = isCall(entry) || entry.kind === "agent" ? entries.filter((note) => note?.kind === "wrapper" && note.content && isAbout(note, entry)) : [];
    const shown = await Promise.all(wrappers.map(async (note) => [h("h3", {}, `What ${title(note)} changed`), ...changes(await content(note).catch(() => ({})))]));
    return shown.flat();
  }

  async function texts(entry) {
    if (entry.kind === "wrapper") return changes(await content(entry).catch(() => ({})));
    const { input, output } = await content(entry).catch((error) => ({ output: error.message }));
    const block = (name, value) => value === null || value === undefined ? [] : [h("h3", {}, name), ...text(value)];
    return [...block("In", input), ...block("Out", output)];
  }

  place.append(head, beside, note, ...(me.managesData ? [managing(run, note)] : []), h("div", { class: "split" }, tree.element, detail));
  drawHead();
  drawTree();
  await drawDetail();
  choose();

  async function change(all, isReset) {
    const hadEnded = run.ended;
    if (isReset) await load().catch(() => {});
    else for (const data of all) {
      ({ run } = data);
      for (const entry of data.entries) entries[entry.n] = entry;
    }
    drawHead();
    drawTree();
    const isShown = (entry) => entry.n === selected || (entries[selected] && isAbout(entry, entries[selected]));
    if (isReset || run.ended !== hadEnded || all.some((data) => data.entries.some(isShown))) drawDetail();
  }

  async function gone() {
    // It may have gone from memory into the database.
    const isGone = await load().then(() => cursor !== null, () => true);
    drawHead();
    drawTree();
    if (isGone) head.append(h("p", { class: "note bad", role: "alert" }, "This run is gone: it was removed, or the console has no room for it."));
  }

  // What is seen first is here; the rest comes behind it, and then what changes from the first page on.
  let leave = () => tree.end();
  async function rest() {
    let isLeft = false;
    leave = () => { isLeft = true; tree.end(); };
    for (let { next } = first; next !== null;) {
      const page = await entriesOf(id, next);
      if (isLeft) return;
      entries.push(...page.entries);
      ({ next } = page);
      drawTree();
      if (entries[selected] && !detail.querySelector("h2")) await drawDetail();
    }
    // One in the database does not change any more.
    if (isLeft || cursor === null) return;
    const end = follow(run.id, cursor, change, gone);
    leave = () => { end(); tree.end(); };
  }
  rest().catch((error) => { note.textContent = error.message; });
  return () => leave();
}

/** A run with a page of its entries, at most as many as the server gives at once. */
const entriesOf = (id, from, limit = "") => get(`api/runs/${encodeURIComponent(id)}?${new URLSearchParams({ from, limit })}`);

/** A run with all its entries, as they were at the cursor or later. */
export async function loadRun(id) {
  const { run, cursor, entries, next: second } = await entriesOf(id, 0);
  for (let next = second; next !== null;) {
    const page = await entriesOf(id, next);
    entries.push(...page.entries);
    ({ next } = page);
  }
  return { run, cursor, entries };
}

const MOMENTS = ["decision", "wrapper", "prefix", "retry", "discarded", "replaced", "rejected", "event", "note"];
const isMoment = ({ kind }) => MOMENTS.includes(kind);
/** Something that is told of another entry. */
const isNote = ({ kind }) => ["decision", "wrapper", "prefix", "retry"].includes(kind);
const isCall = ({ kind }) => kind === "model" || kind === "tool";

/** Whether a decision was made about this entry. */
function isAbout(note, entry) {
  if (!isNote(note) || note.agent !== entry.agent || note.on !== entry.kind) return false;
  if (entry.kind === "agent") return true;
  return entry.kind === "tool" ? note.call === entry.call : note.turn === entry.turn && note.at >= entry.at - 1e6;
}

/** The entries in the order of a tree: each with its depth, and what was decided about it. */
export function flatten(entries) {
  const below = new Map();
  const add = (parent, entry) => below.get(parent)?.push(entry) ?? below.set(parent, [entry]);
  const turns = new Map();
  const tools = new Map();
  const models = new Map();
  const inTurn = ({ agent, turn }) => agent * 1e6 + turn;
  for (const entry of entries) {
    if (entry?.kind === "turn") turns.set(inTurn(entry), entry.n);
    if (entry?.kind === "tool") tools.set(entry.call, entry.n);
    if (entry?.kind === "model") models.set(inTurn(entry), entry.n);
  }
  const notes = new Map();
  for (const entry of entries) {
    if (!entry) continue;
    const turn = turns.get(inTurn(entry));
    if (entry.kind === "agent") {
      add(entry.caller === null ? -1 : tools.get(entry.call) ?? entry.caller, entry);
    } else if (entry.kind === "turn") {
      add(entry.agent, entry);
    } else if (isNote(entry)) {
      const subject = entry.on === "agent" ? entry.agent : entry.on === "tool" ? tools.get(entry.call) : models.get(inTurn(entry));
      if (subject === undefined) add(turn ?? entry.agent, entry);
      else notes.get(subject)?.push(entry) ?? notes.set(subject, [entry]);
    } else {
      add(turn ?? entry.agent, entry);
    }
  }
  const none = [];
  const lines = [];
  const walk = (parent, depth) => {
    const children = (below.get(parent) ?? []).sort((one, other) => one.at - other.at || one.n - other.n);
    for (const entry of children) {
      lines.push({ entry, depth, children: below.get(entry.n)?.length ?? 0, notes: notes.get(entry.n) ?? none });
      walk(entry.n, depth + 1);
    }
  };
  walk(-1, 0);
  return lines;
}

/** What the row of an entry says. */
export const said = ({ entry, notes }) => [words(entry.kind), title(entry), ...badges(entry, notes).map((shown) => shown.textContent)].join(" ");

export function title(entry) {
  switch (entry.kind) {
    case "agent": return entry.path.split("/").at(-1);
    case "turn": return String(entry.turn + 1);
    case "model": return entry.model ?? entry.provider ?? "";
    case "decision": return entry.callback;
    case "wrapper": return entry.names.join(", ").replace(/^\[(.*)\]$/, "$1");
    case "prefix": return part(entry.changed);
    case "retry": return `attempt ${entry.attempt + 1} of the ${entry.on} call failed: ${words(entry.error)}`;
    case "rejected": case "discarded": return entry.error ? words(entry.error) : "";
    default: return entry.name ?? "";
  }
}

export function used({ kind, attempts, usage }) {
  if (kind !== "model") return usage ?? {};
  const sum = (field) => attempts.reduce((all, attempt) => all + attempt.usage[field], 0);
  return { input_tokens: sum("input_tokens"), output_tokens: sum("output_tokens") };
}

export function badges(entry, notes) {
  const shown = [];
  if (entry.error && entry.kind !== "rejected" && entry.kind !== "discarded" && entry.kind !== "retry") shown.push(badge(words(entry.error), entry.error === "interrupted" ? "warn" : "bad"));
  if (entry.is_error) shown.push(badge("refused or failed", "bad"));
  if (entry.is_given) shown.push(badge("not called", "warn"));
  if (entry.waits_for?.length) shown.push(badge(`waits for ${entry.waits_for.join(", ")}`, "warn"));
  if (entry.attempts?.length > 1) shown.push(badge(count(entry.attempts.length, "attempt", "attempts"), "warn"));
  if (entry.answered_by?.length) shown.push(badge(`answered by ${entry.answered_by.join(", ")}`, "good"));
  // What a band did is what its callbacks have decided, but for what they have changed.
  const deeds = notes.filter((note) => note.kind === "wrapper" && (note.names[0].startsWith("[") || note.request.length || note.response.length));
  const decisions = notes.filter((note) => note.kind === "decision" && !isNothing(note) && !deeds.some(({ names }) => names.includes(note.callback)));
  const told = new Set([
    ...decisions.map(({ callback, decision }) => `${callback}: ${typeof decision === "string" ? words(decision) : "failed"}`),
    ...deeds.map(({ names, did }) => `${names.join(", ").replace(/^\[(.*)\]$/, "$1")}: ${did}`),
  ]);
  if (notes.some(({ kind }) => kind === "prefix")) shown.push(badge("cached prefix cut", "warn"));
  shown.push(...[...told].slice(0, 3).map((text) => badge(text, "warn")));
  if (told.size > 3) shown.push(badge(`${told.size - 3} more`, "quiet"));
  if (entry.kind === "decision") shown.push(made(entry));
  if (entry.kind === "wrapper") shown.push(badge(entry.did, "warn"));
  return shown;
}

export function describe(entry, entries, explanations) {
  const path = entries[entry.agent]?.path ?? "";
  const parts = [
    h("h2", {}, h("span", { class: `kind ${entry.kind}` }, words(entry.kind)), " ", title(entry)),
    facts([
      ["Agent", path], ["At", time(entry.at)], ["Time", entry.end > entry.at && span(entry.end - entry.at)], ["Turn", entry.turn !== undefined && entry.kind !== "agent" ? entry.turn + 1 : ""],
      ["Provider", entry.provider], ["Streamed", entry.is_streamed && "yes"], ["Ended", entry.finish && words(entry.finish)],
      ["Error", entry.error && words(entry.error)], ["Call", entry.call],
    ]),
  ];
  if (entry.kind === "decision") parts.push(made(entry));
  if (entry.kind === "prefix") parts.push(h("p", {}, prefixEnds(entry)));
  if (entry.kind === "model") parts.push(...cachedPrefix(entry, entries.filter((note) => note?.kind === "prefix" && isAbout(note, entry))));
  if (isCall(entry) || entry.kind === "agent") {
    const notes = entries.filter((note) => note && isAbout(note, entry));
    const decisions = notes.filter(({ kind }) => kind === "decision");
    const stands = around(find(explanations, path.split("/")), entry.kind, entry.kind === "agent" ? "loop" : entry.name ?? "model");
    const deeds = notes.filter(({ kind }) => kind === "wrapper");
    if (stands.around.length || decisions.length || deeds.length) parts.push(h("h3", {}, "What stands around it"), ...stack(stands.around, stands.target, decisions, deeds));
  }
  if (entry.attempts?.length) {
    const line = ({ end, next, usage, cost }, index) => h("tr", {}, h("td", { class: "number" }, String(index + 1)), h("td", {}, badge(words(end), end === "answered" ? "good" : "bad")), h("td", { class: "number" }, [tokens(usage), dollars(cost)].filter(Boolean).join(", ")), h("td", {}, follows(next)));
    parts.push(h("h3", {}, "Attempts that reached it"), h("table", { class: "attempts" },
      h("thead", {}, h("tr", {}, ["", "End", "Tokens", "Then"].map((head) => head ? h("th", { scope: "col" }, head) : h("td")))),
      h("tbody", {}, entry.attempts.map(line))));
  } else if (isCall(entry) && entry.end) {
    parts.push(h("p", { class: "note" }, entry.kind === "model" ? "No model was called." : "The tool was not called."));
  }
  return parts;
}

function follows(next) {
  if (!next) return "";
  return next.retry ? `again after ${span(next.retry.secs * 1e6 + next.retry.nanos / 1e3)}` : words(typeof next === "string" ? next : Object.keys(next)[0]);
}

/** The fields of a request and of a response that were changed, with the changes marked. */
const changes = ({ input, output }) => [["request", input], ["response", output]].flatMap(([side, fields]) => (fields ?? []).flatMap(({ field, before, after }) => [
  h("h4", {}, `${field} of the ${side}`), marked(plain(before), plain(after))]));

/** The texts of a call, as they were kept. */
function text(value) {
  if (typeof value === "string") return [h("pre", {}, pretty(value))];
  if (typeof value.text === "string") return [h("pre", {}, value.text), h("p", { class: "note" }, `The beginning; ${count(value.length, "byte", "bytes")} in all.`)];
  const messages = value.messages ?? [value];
  return [
    ...(value.instructions === undefined ? [] : [h("h4", {}, "instructions"), ...text(value.instructions)]),
    ...messages.flatMap(({ role, parts }) => [h("h4", {}, role), ...parts.flatMap((part) => [
      ...(part.type === "text" ? [] : [h("p", { class: "quiet" }, [words(part.type), part.name].filter(Boolean).join(" "))]),
      ...(part.text === undefined ? [] : text(part.text)),
    ])]),
  ];
}

/** The texts of a call as one text, to be compared. */
export function plain(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return pretty(value);
  if (typeof value.text === "string") return value.text;
  const messages = value.messages ?? [value];
  const parts = messages.flatMap(({ role, parts }) => [`${role}:`, ...parts.flatMap((part) => [
    ...(part.type === "text" ? [] : [[words(part.type), part.name].filter(Boolean).join(" ")]),
    ...(part.text === undefined ? [] : [plain(part.text)]),
  ])]);
  return [...(value.instructions === undefined ? [] : ["instructions:", plain(value.instructions)]), ...parts].join("\n");
}

function pretty(text) {
  if (!/^[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
