// Where what a provider has cached of the prompt ends, and who has seen to it.

import { badge, count, h, number } from "./dom.js";

/** A part of a prompt, in words. */
export function part(changed) {
  if (changed === "instructions") return "the instructions";
  const [[kind, value]] = Object.entries(changed);
  return kind === "message" ? `message ${value + 1}` : `the ${kind} ${value}`;
}

export const prefixEnds = ({ changed, by }) => `the cached prefix ends at ${part(changed)}: changed by ${by.join(", ").replace(/^\[(.*)\]$/, "$1") || "the agent itself"}`;

/** What is known of the prefix of a model call that has these notes. */
export function cachedPrefix({ attempts }, notes) {
  const sum = (field) => attempts.reduce((all, { usage }) => all + usage[field], 0);
  const [read, cached] = [sum("input_tokens"), sum("cached_input_tokens")];
  return [
    notes.length ? h("ul", { class: "warnings" }, notes.map((note) => h("li", {}, badge(prefixEnds(note), "warn")))) : null,
    read && (notes.length || cached) ? h("p", { class: "note" }, `${number(cached)} of ${count(read, "token", "tokens")} were read from the provider's cache, as far as it says.`) : null,
  ].filter(Boolean);
}
