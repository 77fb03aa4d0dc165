// What was changed in a text, by words, or by lines where it is long.

import { h } from "./dom.js";

/** The number of pairs of pieces that are compared at most. */
const PAIRS = 4e6;

const WORDS = /\n|[^\S\n]+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const LINES = /[^\n]*\n|[^\n]+/g;

/** The pieces of both texts in order: `[" ", text]` of both, `["-", text]` of the first, `["+", text]` of the second. */
export function diff(before, after) {
  for (const pieces of [WORDS, LINES]) {
    const found = compare(before.match(pieces) ?? [], after.match(pieces) ?? []);
    if (found) return joined(found);
  }
  return [["-", before], ["+", after]];
}

function compare(before, after) {
  let start = 0;
  while (start < before.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < Math.min(before.length, after.length) - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const one = before.slice(start, before.length - end);
  const other = after.slice(start, after.length - end);
  const middle = longest(one, other);
  return middle && [
    ...before.slice(0, start).map((piece) => [" ", piece]),
    ...middle,
    ...before.slice(before.length - end).map((piece) => [" ", piece]),
  ];
}

/** Keeps as many pieces as possible; `undefined` if there are too many to compare. */
function longest(one, other) {
  const width = other.length + 1;
  if ((one.length + 1) * width > PAIRS) return undefined;
  // The number of pieces that both have from here on.
  const common = new Uint32Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      const at = i * width + j;
      common[at] = one[i] === other[j] ? common[at + width + 1] + 1 : Math.max(common[at + width], common[at + 1]);
    }
  }
  const found = [];
  let i = 0;
  let j = 0;
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) { found.push([" ", one[i]]); i += 1; j += 1; }
    else if (j === other.length || (i < one.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) { found.push(["-", one[i]]); i += 1; }
    else { found.push(["+", other[j]]); j += 1; }
  }
  return found;
}

function joined(pieces) {
  const all = [];
  for (const [sign, text] of pieces) {
    if (all.at(-1)?.[0] === sign) all.at(-1)[1] += text;
    else all.push([sign, text]);
  }
  return all;
}

/** Both texts in one, with what is in one of them alone marked. */
export function marked(before, after) {
  const tags = { " ": "span", "-": "del", "+": "ins" };
  return h("pre", { class: "diff" }, diff(before, after).map(([sign, text]) => h(tags[sign], {}, text)));
}
