// What the page asks the server. All addresses are relative: wherever the console is mounted, and
// whatever a proxy has stripped, they lie below the page.

const status = document.getElementById("status");

function tell(state, text) {
  status.dataset.state = state;
  status.textContent = text;
}

export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

async function read(response) {
  if (response.ok) return response.status === 202 ? undefined : response.json();
  const { error } = await response.json().catch(() => ({ error: { message: response.statusText } }));
  throw new Refused(response.status, error.message);
}

export const get = async (path) => read(await fetch(path));

export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  return read(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

/**
 * Follows what changes; `change(all, isReset)` gets all that came since the frame before, and `gone()` is called once
 * there is nothing to follow any more. Returns a function that ends it.
 */
export function follow(run, cursor, change, gone) {
  let source;
  let since = cursor;
  let timer;
  let waiting = [];
  let isReset = false;
  let isAsked = false;
  async function flush() {
    if (!waiting.length) return;
    const all = waiting;
    const wasReset = isReset;
    waiting = [];
    isReset = false;
    await change(all, wasReset).catch(() => {});
  }
  async function take() {
    if (isAsked) return;
    isAsked = true;
    // A page that nobody looks at has no frames, and is brought up to date all the same.
    await Promise.race([new Promise((now) => requestAnimationFrame(now)), new Promise((now) => setTimeout(now, 1000))]);
    await flush();
    isAsked = false;
    if (waiting.length) take();
  }
  const got = (isAnew) => ({ data, lastEventId }) => {
    since = lastEventId;
    if (isAnew) { waiting = []; isReset = true; }
    waiting.push(JSON.parse(data));
    take();
  };
  const open = () => {
    source = new EventSource(`api/live?${new URLSearchParams({ since, ...(run && { run }) })}`);
    source.onopen = () => tell("live", "live");
    source.addEventListener("change", got(false));
    source.addEventListener("reset", got(true));
    source.addEventListener("gone", () => { end(); gone(); });
    source.onerror = () => {
      tell("away", "no connection, trying again");
      // The browser tries again by itself, unless the server has refused.
      if (source.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(async () => {
        const known = await get(run ? `api/runs/${encodeURIComponent(run)}?from=1000000` : "api/me").catch((error) => error);
        if (known.code === 404 || known.cursor === null) { end(); gone(); } else open();
      }, 1000);
    };
  };
  const end = () => {
    clearTimeout(timer);
    source.close();
    tell("", "");
  };
  open();
  return end;
}
