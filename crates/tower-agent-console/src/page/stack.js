// Stacks: what is around a call, from the outside in.

import { badge, h, span, words } from "./dom.js";
import { get } from "./server.js";

/**
 * The callbacks and layers around a call, with what each did. Below them are the `decisions` and the `deeds` of
 * wrappers whose place is another one in the run than in the explanation.
 */
export function stack(around, target, decisions = [], deeds = []) {
  const names = around.flatMap((wrapper) => wrapper.callbacks ?? []);
  const place = ({ callback, wrapper }) => {
    if (around[wrapper]?.callbacks?.includes(callback)) return wrapper;
    // A name that stands in several places does not say which of them has decided.
    const isOne = names.indexOf(callback) !== -1 && names.indexOf(callback) === names.lastIndexOf(callback);
    return isOne ? around.findIndex(({ callbacks }) => callbacks?.includes(callback)) : -1;
  };
  const isDeedOf = ({ names: own, index }, at) => index === at && own.join() === (around[at].layer === undefined ? around[at].callbacks.join() : `[${around[at].layer}]`);
  const items = around.map(({ layer, callbacks }, at) => h("li", { class: layer === undefined ? "band" : "layer" },
    layer === undefined
      ? callbacks.map((name) => callback(name, decisions.filter((decision) => decision.callback === name && place(decision) === at)))
      : [h("span", { class: "name" }, layer), h("span", { class: "quiet" }, " layer")],
    deeds.filter((deed) => isDeedOf(deed, at)).map(done)));
  const others = decisions.filter((decision) => place(decision) === -1);
  const otherDeeds = deeds.filter((deed) => !around.some((_, at) => isDeedOf(deed, at)));
  const owners = [...new Set(others.map((decision) => decision.callback))];
  const elsewhere = [
    ...owners.map((name) => h("li", { class: "band" }, callback(name, others.filter((decision) => decision.callback === name)))),
    ...otherDeeds.map((deed) => h("li", { class: "band" }, h("span", { class: "name" }, deed.names.join(", ")), done(deed))),
  ];
  return [
    h("ol", { class: "stack" }, items, h("li", { class: "target" }, h("span", { class: "name" }, target))),
    ...(elsewhere.length ? [h("h4", {}, around.length ? "Elsewhere around it, such as what came with the run" : "Around it"), h("ul", { class: "stack" }, elsewhere)] : []),
  ];
}

/** What a band or a layer did, why and how much. */
function done({ did, names, reasons = [], request, response, attempt, own_time: own }) {
  // Which fields is said in words already; how much they changed is not.
  const sized = [...request, ...response].filter(({ before, after }) => before !== null || after !== null);
  const more = [
    ...sized.map(({ field, before, after }) => `${field} ${before ?? "none"} → ${after ?? "none"}`),
    attempt ? `attempt ${attempt + 1}` : "",
    `${span(own)} of its own`,
  ];
  // Those of a band's callbacks stand with what these have decided.
  const why = names[0].startsWith("[") && reasons.length ? ` ${reasons.join("; ")}` : null;
  return h("p", { class: "deed" }, badge(did, "warn"), why, h("span", { class: "quiet" }, ` ${more.filter(Boolean).join(" · ")}`));
}

/** A callback with what it has decided; the same again is a number. */
function callback(name, decisions) {
  const counts = new Map();
  for (const decision of decisions) {
    const text = told(decision);
    const known = counts.get(text) ?? { decision, times: 0, reasons: new Set() };
    known.times += 1;
    for (const reason of decision.reasons ?? []) known.reasons.add(reason);
    counts.set(text, known);
  }
  return h("div", { class: "callback" }, h("span", { class: "name" }, name), [...counts].map(([text, { decision, times, reasons }]) => [badge(times > 1 ? `${text}, ${times} times` : text, kind(decision)), reasons.size ? h("span", {}, [...reasons].join("; ")) : null]));
}

const did = (decision) => typeof decision === "string" ? words(decision) : `failed: ${words(Object.values(decision)[0])}`;
export const isNothing = ({ decision }) => decision === "continue" || decision === "propagate";

const kind = (decision) => isNothing(decision) ? "quiet" : "warn";
const told = ({ hook, decision, attempt }) => `${words(hook)}: ${did(decision)}${attempt ? `, attempt ${attempt + 1}` : ""}`;

/** What a hook has decided. */
export const made = (decision) => badge(told(decision), kind(decision));

/** The explanation of the agent at this path. */
export function find(explanations, path) {
  const named = (list, name) => list.find(({ agent }) => agent === name);
  return path.reduce((outer, name) => {
    const { loop, team } = outer?.body ?? {};
    const inTools = (loop?.tools ?? []).flatMap((tool) => tool.agent ?? []);
    return named([...(loop?.sub_agents ?? team?.members ?? []), ...inTools], name) ?? named(explanations, name);
  }, undefined);
}

/** What is around one call of an agent: `agent`, `model` or `tool`. */
export function around(explained, kind, name) {
  if (!explained) return { around: [], target: name };
  const { loop, team } = explained.body;
  if (kind === "agent") return { around: explained.around, target: team ? `team: ${team.plan}` : "loop" };
  if (kind === "model") return { around: loop?.model.around ?? [], target: loop?.model.name ?? name };
  const tool = loop?.tools.find((known) => known.name === name);
  return { around: [...(loop?.around_tools ?? []), ...(tool?.around ?? [])], target: name };
}

function agent(explained, level) {
  const { loop, team } = explained.body;
  const head = `h${Math.min(level, 6)}`;
  const inner = `h${Math.min(level + 1, 6)}`;
  const part = (title, kind, name) => {
    const { around: wrappers, target } = around(explained, kind, name);
    return h("div", {}, h(inner, {}, title), ...stack(wrappers, target));
  };
  return h("section", { class: "explained" },
    h(head, {}, explained.agent),
    explained.warnings?.length ? h("ul", { class: "warnings" }, explained.warnings.map((warning) => h("li", {}, badge("order", "warn"), ` ${warning}`))) : null,
    h("div", { class: "stacks" },
      part("Agent call", "agent"),
      loop && part(`Model call, at most ${loop.max_iterations}`, "model"),
      loop?.tools.map((tool) => part(`Tool ${tool.name}`, "tool", tool.name))),
    (loop?.sub_agents ?? team?.members ?? []).map((inside) => agent(inside, level + 1)));
}

export async function showAgents(place) {
  const explanations = await get("api/agents");
  place.append(h("h1", {}, "Agents"));
  if (!explanations.length) place.append(h("p", { class: "note" }, "The program has told of none: ", h("code", {}, "console.agent(&agent)"), " shows one here, with everything around its calls."));
  place.append(...explanations.map((explained) => agent(explained, 2)));
}
