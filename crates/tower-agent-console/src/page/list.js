// A long list: only the rows near what is in sight are elements. The others are text, which the browser finds.

import { h } from "./dom.js";

/** The number of rows that become elements, or text, together. */
const CHUNK = 25;

/**
 * A list of items that the arrow keys walk. `name` tells an item from the others, and `isSame` whether what is known of
 * one says the same now. `text` is what its row says, and `draw` makes the row, with a button of the class `pick`.
 */
export function longList(label, { name, isSame, text, draw }) {
  const element = h("div", { class: "tree", role: "list", "aria-label": label, onkeydown: walk });
  const chunks = [];
  const owners = new WeakMap();
  let rows = new Map();
  let selected;
  const observer = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      const chunk = owners.get(target);
      chunk.isNear = isIntersecting;
      fill(chunk);
    }
  }, { rootMargin: "100% 0px" });

  const rowOf = (target) => owners.get(target?.closest?.("[role=listitem]"));

  /** Brings the list up to date. */
  function show(items) {
    const focused = rowOf(document.activeElement);
    const known = rows;
    rows = new Map();
    const all = items.map((item, index) => {
      const before = known.get(name(item));
      const row = before && isSame(before.item, item) ? before : {};
      rows.set(name(item), Object.assign(row, { item, index }));
      return row;
    });
    const count = Math.ceil(all.length / CHUNK);
    while (chunks.length > count) {
      const { place } = chunks.pop();
      observer.unobserve(place);
      place.remove();
    }
    while (chunks.length < count) {
      // The first ones are seen at once; of the others the observer tells.
      const chunk = { place: h("div", { class: "chunk" }), rows: [], isNear: chunks.length < 2 };
      owners.set(chunk.place, chunk);
      chunks.push(chunk);
      element.append(chunk.place);
      observer.observe(chunk.place);
    }
    for (const [index, chunk] of chunks.entries()) {
      const own = all.slice(index * CHUNK, (index + 1) * CHUNK);
      if (own.length === chunk.rows.length && own.every((row, at) => row === chunk.rows[at])) continue;
      chunk.rows = own;
      chunk.isDrawn = undefined;
      fill(chunk);
    }
    const isLost = focused && !element.contains(document.activeElement);
    if (isLost) focus(rows.get(name(focused.item)));
  }

  function fill(chunk, isWanted = false) {
    const { place } = chunk;
    const isDrawn = chunk.isNear || isWanted || place.contains(document.activeElement);
    if (isDrawn === chunk.isDrawn) return;
    chunk.isDrawn = isDrawn;
    place.style.setProperty("--rows", chunk.rows.length);
    if (isDrawn) {
      const elements = chunk.rows.map((row) => row.element ??= made(row));
      // Without touching those that are where they were.
      elements.forEach((row, at) => { if (place.children[at] !== row) place.insertBefore(row, place.children[at] ?? null); });
      while (place.children.length > elements.length) place.lastChild.remove();
      return;
    }
    const words = chunk.rows.map((row) => row.words ??= text(row.item).replace(/\s+/g, " "));
    for (const row of chunk.rows) row.element = undefined;
    place.replaceChildren(h("div", { class: "words", role: "listitem" }, words.join("\n")));
  }

  function made(row) {
    const own = draw(row.item);
    own.setAttribute("role", "listitem");
    owners.set(own, row);
    press(own, name(row.item) === selected);
    return own;
  }

  const press = (row, isPressed) => row.querySelector(".pick").setAttribute("aria-pressed", String(isPressed));

  /** Marks the item with this name, and no other one. */
  function select(now) {
    const before = rows.get(selected)?.element;
    if (before) press(before, false);
    selected = now;
    const after = rows.get(now)?.element;
    if (after) press(after, true);
  }

  /** Moves the focus to a row, wherever it is. */
  function focus(row) {
    if (!row) return;
    fill(chunks[Math.floor(row.index / CHUNK)], true);
    row.element.querySelector(".pick").focus();
  }

  function walk(event) {
    const row = rowOf(event.target);
    if (!row) return;
    const all = chunks.flatMap((chunk) => chunk.rows);
    const to = { ArrowDown: row.index + 1, ArrowUp: row.index - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    focus(all[to]);
    event.preventDefault();
  }

  /** The rows that are elements, with their items. */
  const drawn = () => chunks.filter((chunk) => chunk.isDrawn).flatMap((chunk) => chunk.rows);

  return { element, show, select, drawn, end: () => observer.disconnect() };
}
