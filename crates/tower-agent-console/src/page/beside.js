// Two runs beside each other, aligned by step.

import { facts, h, span, status, time, tokens, words } from "./dom.js";
import { get } from "./server.js";
import { remember } from "./app.js";
import { marked } from "./diff.js";
import { longList } from "./list.js";
import { badges, describe, flatten, loadRun, plain, said, title, used } from "./run.js";

export async function showBeside(place, { run: one, beside: other, at }, me) {
  const [explanations, ...runs] = await Promise.all([get("api/agents"), loadRun(one), loadRun(other)]);
  const rows = align(runs.map(({ entries }) => flatten(entries)));
  const list = longList("Steps of both runs", {
    name,
    isSame: (known, now) => known === now,
    text: ({ lines }) => lines.map((line) => line ? said(line) : "–").join(" "),
    draw: (row) => draw(row, () => { remember({ at: name(row) }); select(row); }),
  });
  const detail = h("section", { class: "sides", "aria-label": "Details", tabindex: "0" });
  let drawing = 0;

  async function select(row) {
    const own = ++drawing;
    list.select(name(row));
    const texts = await Promise.all(row.lines.map((line, side) => textsOf(line?.entry, runs[side].run)));
    if (own !== drawing) return;
    const isPair = row.lines.every(Boolean);
    detail.replaceChildren(...row.lines.map((line, side) => h("div", { class: "side" }, line
      ? [describe(line.entry, runs[side].entries, explanations), isPair ? [] : [alone("In", texts[side].input), alone("Out", texts[side].output)].flat()]
      : h("p", { class: "note" }, "This run has no such step."))),
      h("div", { class: "both" }, isPair && [compared("In", texts.map(({ input }) => input)), compared("Out", texts.map(({ output }) => output))]));
  }

  async function textsOf(entry, run) {
    if (!entry?.content || !me.seesContent) return {};
    return get(`api/runs/${encodeURIComponent(run.id)}/content/${entry.n}`).catch(() => ({}));
  }

  const alone = (head, value) => plain(value) ? [h("h3", {}, head), h("pre", {}, plain(value))] : [];

  /** The texts of both as one, in which what differs is marked. */
  function compared(head, texts) {
    const [before, after] = texts.map(plain);
    if (before === "" && after === "") return [];
    return [h("h3", {}, before === after ? `${head}: the same` : `${head}: from the first run to the second`), marked(before, after)];
  }

  place.append(
    h("p", { class: "path" }, h("a", { href: "?" }, "Runs"), " / beside each other"),
    h("h1", {}, [...new Set(runs.map(({ run }) => run.agent))].join(" and ")),
    h("div", { class: "sides" }, runs.map(({ run }) => h("div", { class: "side" },
      h("h2", {}, h("a", { href: `?${new URLSearchParams({ run: run.id })}` }, run.id)),
      h("p", {}, status(run.status), run.error && ` ${words(run.error)}`),
      facts([["Begun", time(run.begun)], ["Time", run.ended ? span(run.ended - run.begun) : words(run.status)], ["Tokens", tokens(run.usage)], ["Calls", `${run.model_calls} + ${run.tool_calls}`], ["Decided by", run.decided_by.join(", ")]])))),
    list.element, detail);
  list.show(rows);
  const wanted = rows.find((row) => name(row) === at);
  if (wanted) await select(wanted);
  else detail.append(h("p", { class: "note" }, "Choose a step to see both sides of it."));
  return list.end;
}

/** What names a pair: the entry of the first run, or that of the second one alone. */
const name = ({ lines }) => lines[0] ? String(lines[0].entry.n) : `b${lines[1].entry.n}`;

/** A step, as each of the runs has it. */
function draw({ lines, depth }, onclick) {
  const side = (line) => h("span", { class: "side" }, line
    ? [h("span", { class: `kind ${line.entry.kind}` }, words(line.entry.kind)), " ", h("span", { class: "name" }, title(line.entry)), " ", badges(line.entry, line.notes),
      h("span", { class: "quiet number" }, [line.entry.end > line.entry.at && span(line.entry.end - line.entry.at), tokens(used(line.entry))].filter(Boolean).join(" · "))]
    : h("span", { class: "quiet" }, "–"));
  const button = h("button", { type: "button", class: "pick", onclick }, lines.map(side));
  button.style.setProperty("--depth", Math.min(depth, 12));
  return h("div", { class: lines.every(Boolean) ? "pair" : "pair alone" }, button);
}

/** The steps of two trees in one list. Two are the same if they are the nth of their kind and name in the same place. */
function align(trees) {
  const rows = [];
  const merge = (levels, depth) => {
    const [one, other] = levels.map(named);
    const keys = [];
    const rest = [...other.keys()];
    for (const key of one.keys()) {
      // What stands before it in the other run alone.
      const at = rest.indexOf(key);
      if (at !== -1) keys.push(...rest.splice(0, at + 1).slice(0, -1).filter((early) => !one.has(early)));
      keys.push(key);
    }
    keys.push(...rest.filter((key) => !one.has(key)));
    for (const key of keys) {
      const nodes = [one.get(key), other.get(key)];
      rows.push({ lines: nodes.map((node) => node?.line), depth });
      merge(nodes.map((node) => node?.children ?? []), depth + 1);
    }
  };
  merge(trees.map(nested), 0);
  return rows;
}

/** The lines of a tree as nodes with children. */
function nested(lines) {
  const top = [];
  const open = [];
  for (const line of lines) {
    const node = { line, children: [] };
    (open[line.depth - 1]?.children ?? top).push(node);
    open[line.depth] = node;
    open.length = line.depth + 1;
  }
  return top;
}

/** Nodes by kind, name and how many there were before. That of a model or of the outermost agent may differ. */
function named(nodes) {
  const counts = new Map();
  return new Map(nodes.map((node) => {
    const { entry, depth } = node.line;
    const name = `${entry.kind} ${entry.kind === "model" || depth === 0 ? "" : title(entry)}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
    return [`${name} ${counts.get(name)}`, node];
  }));
}
