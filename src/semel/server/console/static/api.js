// Calls of the server. The token is in the memory of this tab (sessionStorage), and in a header of each call: never in a
// URL and never in a cookie.

const BASE = `${location.pathname.replace(/\/+$/, "")}/api`;
const KEPT = "semel.token";

/** A refusal of the server, or a server that cannot be reached; the message is one sentence. */
export class CallError extends Error {
  /**
   * @param {number} status 0 if there was no answer
   * @param {string} message
   * @param {any} [told] the document of the refusal
   */
  constructor(status, message, told = {}) {
    super(message);
    this.status = status;
    this.told = told;
  }
}

/**
 * What the page knows of its caller.
 * @type {{name: string, actor: string, roles: string[], needs_token: boolean, has_scopes: boolean, namespace: string, version: string, expires_ms: number | null} | null}
 */
export let caller = null;

export const isAdmin = () => caller !== null && caller.roles.includes("admin") && !caller.has_scopes;

/** @returns {string} */
function token() {
  if (kept) return kept;
  try {
    return sessionStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
}
let kept = "";

/** @param {string} text */
export function keepToken(text) {
  kept = text;
  try {
    if (text) sessionStorage.setItem(KEPT, text);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // Storage is turned off: the token lasts as long as the page.
  }
}

/** Ask the server who the caller is; `CallError` with status 401 if a token is needed. */
export async function identify() {
  caller = await read("/v1/caller");
  return caller;
}

/** Forget the token. It stays valid: another tab, or whoever has a copy, may go on using it. */
export function signOut() {
  keepToken("");
  caller = null;
  dispatchEvent(new Event("signed-out"));
}

/**
 * @typedef {{method?: string, body?: any, headers?: Record<string, string>, signal?: AbortSignal}} CallOptions
 */

/** A segment of dots, or what a browser takes for one: it would be taken out of the path, and lead to another call. */
const DOTS = /(?:^|\/)((?:\.|%2e){1,2})(?:\/|$)/i;

/**
 * Send a request; the answer, or a `CallError`.
 * @param {string} path as in the reference, such as /v1/jobs
 * @param {CallOptions} [options]
 * @returns {Promise<Response>}
 */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  const [, dots] = DOTS.exec(path.split("?", 1)[0]) ?? [];
  if (dots) throw new CallError(0, `A browser cannot ask for the name \`${decodeURIComponent(dots)}\`, which means another place in a URL: use a command or a client.`);
  const given = { ...headers };
  const own = token();
  if (own) given["Authorization"] = `Bearer ${own}`;
  if (body !== undefined) given["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(BASE + path, {
      method,
      headers: given,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      redirect: "error",
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new CallError(0, "The server cannot be reached; look whether it runs.");
  }
  if (answer.ok || answer.status === 304) return answer;
  const refused = await refusal(answer);
  // A late answer to a call of somebody who has signed out says nothing of the token of the next person.
  if (answer.status === 401 && token() === own) {
    const detail = own ? refused.message : "";
    keepToken("");
    caller = null;
    dispatchEvent(new CustomEvent("refused", { detail }));
  }
  throw refused;
}

/** @param {Response} answer */
async function refusal(answer) {
  /** @type {any} */
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // A refusal without a document.
  }
  const message = told.detail ?? told.message ?? told.error?.message ?? told.error ?? `The server answered ${answer.status}.`;
  return new CallError(answer.status, String(message), told);
}

/**
 * The JSON of an answer.
 * @param {string} path
 * @param {CallOptions} [options]
 * @returns {Promise<any>}
 */
export async function read(path, options) {
  return (await send(path, options)).json();
}

/**
 * A path with encoded parts: path`/v1/jobs/${id}`.
 * @param {TemplateStringsArray} texts
 * @param {...any} parts
 */
export function path(texts, ...parts) {
  return texts.reduce((sum, text, place) => sum + encodeURIComponent(String(parts[place - 1])) + text);
}

/**
 * A query string of the parameters that have a value.
 * @param {Record<string, any>} given
 */
export function query(given) {
  const known = Object.entries(given).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return known.length ? `?${new URLSearchParams(known)}` : "";
}

/**
 * Run `step` now and every so many milliseconds while the page is shown, until the signal says stop.
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @param {() => Promise<void>} step
 */
export async function every(milliseconds, signal, step) {
  while (!signal.aborted) {
    if (!document.hidden) await step();
    await new Promise((go) => {
      const timer = setTimeout(go, milliseconds);
      signal.addEventListener("abort", () => (clearTimeout(timer), go(null)), { once: true });
    });
  }
}
