// Elements and texts. Everything that a run said goes through `textContent`, never through HTML.

/** Creates an element: `h("a", { class: "x", href: "?" }, "text", other)`. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const calendar = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** A time in microseconds since 1970; with the day, unless it is today's. */
export function time(micros) {
  const date = new Date(micros / 1000);
  const isToday = date.toDateString() === new Date().toDateString();
  const text = isToday ? clock.format(date) : `${calendar.format(date)}, ${clock.format(date)}`;
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, text);
}

/** A time span, from microseconds. */
export function span(micros) {
  if (micros < 1000) return `${Math.max(0, Math.round(micros))} µs`;
  if (micros < 1e6) return `${(micros / 1000).toPrecision(3).replace(/\.0+$/, "")} ms`;
  if (micros < 60e6) return `${(micros / 1e6).toFixed(1)} s`;
  const seconds = Math.round(micros / 1e6);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

const numbers = new Intl.NumberFormat();
export const number = (value) => numbers.format(value);
export const count = (number, one, many) => `${numbers.format(number)} ${number === 1 ? one : many}`;

/** Tokens, as they go in and out. Empty if none are known. */
export function tokens(usage) {
  const { input_tokens: read, output_tokens: written } = usage;
  return read || written ? `${numbers.format(read)} → ${numbers.format(written)}` : "";
}

/** A cost in US dollars; empty if no provider has stated it. */
export const dollars = (cost) => typeof cost === "number" ? `$${cost.toPrecision(3)}` : "";

/** A code of the server's, as words. */
export const words = (code) => String(code).replaceAll("_", " ");

export const badge = (text, kind) => h("span", { class: `badge ${kind ?? ""}` }, text);

const KINDS = { failed: "bad", lost: "bad", unreadable: "bad", cancelled: "warn", waiting: "warn", unfinished: "warn", running: "go", completed: "good" };
export const status = (name) => h("span", { class: `badge ${KINDS[name] ?? ""}`, "data-status": name }, name);

/** A list of names and values; what has no value is left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value || value === 0);
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
