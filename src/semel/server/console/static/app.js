// The shell: pages by the part of the URL behind #, the search box, keys, the theme, and signing in.
import { CallError, caller, identify, keepToken, signOut } from "./api.js";
import { command, failure, h, heading, show } from "./dom.js";

/** Pages: the name of the module, the title, and the key behind g. */
const PAGES = [
  ["overview", "Overview", "o"],
  ["find", "Find", "f"],
  ["streams", "Streams", "s"],
  ["events", "Events", "e"],
  ["jobs", "Jobs", "j"],
  ["ledger", "Ledger", "l"],
  ["deltas", "Deltas", "d"],
  ["audit", "Audit", "a"],
  ["settings", "Settings", "t"],
  ["health", "Health", "h"],
];
const THEMES = ["auto", "light", "dark"];
/** What a header can carry of a token. */
const TOKEN = /^[\x21-\x7e]+$/;
const view = /** @type {HTMLElement} */ (document.getElementById("view"));
const nav = /** @type {HTMLElement} */ (document.getElementById("nav"));
const box = /** @type {HTMLInputElement} */ (document.getElementById("find"));
let running = new AbortController();

/**
 * @typedef {{page: string, parts: string[], query: URLSearchParams}} Route
 * @returns {Route}
 */
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page, ...parts] = path.split("/").map(decoded);
  return { page: page || "overview", parts, query: new URLSearchParams(query ?? "") };
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function go() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const to = route();
  drawNav(to.page);
  const known = PAGES.some(([name]) => name === to.page);
  try {
    if (!caller) await identify();
    drawCaller();
    if (!known) throw new CallError(404, "The console has no such page.");
    const page = await import(`./pages/${to.page}.js`);
    if (!signal.aborted) await page.render(view, to, signal);
  } catch (error) {
    if (signal.aborted || (error instanceof CallError && error.status === 401)) return;
    show(view, heading("Console"), failure(error));
  }
}

/** @param {string} current */
function drawNav(current) {
  const link = (/** @type {string[]} */ [name, title, key]) =>
    h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null, title: `g ${key}` }, title);
  show(nav, PAGES.map(link));
  centreNav();
}

/** Scroll the links sideways, where they are one row, to the page that is shown; the page itself does not scroll. */
function centreNav() {
  const shown = /** @type {HTMLElement | null} */ (nav.querySelector("[aria-current]"));
  if (shown) nav.scrollLeft = shown.offsetLeft - nav.offsetLeft - (nav.clientWidth - shown.offsetWidth) / 2;
}

function drawCaller() {
  const place = /** @type {HTMLElement} */ (document.getElementById("caller"));
  if (!caller) return show(place);
  const label = caller.needs_token ? caller.name : "development mode";
  const leave = caller.needs_token ? h("button", { type: "button", class: "quiet", onclick: signOut }, "Sign out") : null;
  const space = caller.namespace === "default" ? null : h("span", { class: "badge" }, caller.namespace);
  show(place, space, h("span", { class: "clip muted", title: `${label}: ${caller.roles.join(", ")}` }, label), leave);
}

/**
 * Ask for a token.
 * @param {string} [reason] why the last one was refused
 */
function signIn(reason) {
  running.abort();
  const field = h("input", { type: "password", id: "token", name: "token", autocomplete: "off", spellcheck: "false" });
  const enter = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const given = field.value.trim().replace(/^Bearer\s+/i, "");
    if (!given) return;
    if (!TOKEN.test(given)) return signIn("A token is one word without spaces: copy it again.");
    keepToken(given);
    await go();
  };
  show(
    view,
    heading("Sign in", "This server needs a token. Paste yours: it stays in this tab, until you sign out or close the tab."),
    reason ? failure(new Error(reason.replaceAll("`", ""))) : null,
    h(
      "form",
      { class: "sign-in", onsubmit: enter },
      h("label", { for: "token" }, "Token"),
      field,
      h("button", { type: "submit", class: "main" }, "Sign in"),
    ),
    h("p", { class: "muted" }, "An administrator makes a token:"),
    command("semel token create NAME --role read"),
  );
  field.focus();
}

function setTheme(/** @type {string} */ name) {
  const button = /** @type {HTMLElement} */ (document.getElementById("theme"));
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("semel.theme", name);
  } catch {
    // Storage is turned off: the theme lasts as long as the page.
  }
  show(button, `Theme: ${name}`);
  button.setAttribute("aria-label", `Theme: ${name}; change it`);
}

/** @type {number} When g was pressed, in milliseconds; 0 if another key came since. */
let leader = 0;

function pressed(/** @type {KeyboardEvent} */ event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key === "Escape" && target === box) return box.blur();
  if (target.closest("input, textarea, select")) return;
  if (event.key === "/") {
    event.preventDefault();
    box.select();
    box.focus();
  } else if (event.key === "g") {
    leader = Date.now();
    return;
  } else if (Date.now() - leader < 1500) {
    const found = PAGES.find(([, , key]) => key === event.key);
    if (found) location.hash = `#/${found[0]}`;
  }
  leader = 0;
}

function search(/** @type {Event} */ event) {
  event.preventDefault();
  if (box.value.trim()) location.hash = `#/find/${encodeURIComponent(box.value.trim())}`;
}

function start() {
  setTheme(document.documentElement.dataset.theme ?? "auto");
  document.getElementById("theme")?.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "auto";
    setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
  });
  document.getElementById("search")?.addEventListener("submit", search);
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    view.focus();
  });
  addEventListener("keydown", pressed);
  addEventListener("hashchange", go);
  addEventListener("resize", centreNav);
  addEventListener("refused", (event) => (drawCaller(), signIn(/** @type {CustomEvent} */ (event).detail)));
  addEventListener("signed-out", () => (drawCaller(), signIn()));
  go();
}

start();
