// Elements of the page. Content is set as text alone: nothing here, or elsewhere in the console, takes markup.

/** Attributes that a page may set; anything else is a fault of the page. */
const ALLOWED =
  /^(class|id|title|type|name|value|href|for|role|tabindex|datetime|placeholder|autocomplete|spellcheck|scope|colspan|rel|download|viewBox|preserveAspectRatio|points|d|x|y|x1|x2|y1|y2|width|height|aria-[a-z]+|data-[a-z]+)$/;
const SVG = new Set(["svg", "polyline", "path", "line", "rect", "g"]);

/**
 * An element with attributes, listeners (`onclick`), properties of true or false (`checked`), and children.
 * A child is an element, a text, a number, a list of these, or null for nothing.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...any} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  const made = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (!ALLOWED.test(name)) throw new Error(`${name} is no attribute of the console`);
    else if (name === "href" && !String(value).startsWith("#")) throw new Error("a link of the console leads into it");
    else made.setAttribute(name, String(value));
  }
  add(made, children);
  return made;
}

/**
 * @param {any} parent
 * @param {any[]} children
 */
function add(parent, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(parent, child);
    else if (child !== null && child !== undefined && child !== false) parent.append(child);
  }
}

/**
 * Replace what an element shows.
 * @param {any} parent
 * @param {...any} children
 */
export function show(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
}

/**
 * Change a text only if it differs, so that a live page does not repaint what stays.
 * @param {any} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * The head of a page: its name, a sentence, and what stands at the right.
 * @param {string} title
 * @param {any} [about]
 * @param {...any} actions
 */
export function heading(title, about, ...actions) {
  document.title = `${title} · Semel`;
  return h(
    "div",
    { class: "heading" },
    h("div", null, h("h1", null, title), about ? h("p", { class: "muted" }, about) : null),
    h("div", { class: "actions" }, actions),
  );
}

/**
 * @typedef {{title: string, cell: (row: any) => any, kind?: string}} Column
 * @param {string} label
 * @param {Column[]} columns
 * @param {any[]} rows
 * @param {any} [empty]
 */
export function table(label, columns, rows, empty) {
  if (rows.length === 0 && empty) return empty;
  const head = columns.map((one) => h("th", { scope: "col", class: one.kind }, one.title));
  const line = (/** @type {any} */ row) =>
    h("tr", null, ...columns.map((one) => h("td", { class: one.kind, "data-label": one.title }, h("div", null, one.cell(row)))));
  return scrolled(label, h("table", { class: "rows" }, h("thead", null, h("tr", null, head)), h("tbody", null, rows.map(line))));
}

/**
 * A region that scrolls sideways by itself, by keyboard too.
 * @param {string} label
 * @param {any} inner
 */
export function scrolled(label, inner) {
  return h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, inner);
}

/**
 * What a page says when it has nothing to show, with commands to copy.
 * @param {string} sentence
 * @param {...string} commands
 */
export function empty(sentence, ...commands) {
  return h("div", { class: "empty" }, h("p", null, sentence), commands.map(command));
}

/**
 * A command with a button that copies it.
 * @param {string} text
 */
export function command(text) {
  const button = h("button", { type: "button", class: "quiet", onclick: () => copy(text, button) }, "Copy");
  return h("div", { class: "command" }, h("code", { tabindex: 0 }, text), button);
}

/**
 * @param {string} text
 * @param {any} button
 */
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied.");
  } catch {
    const range = document.createRange();
    range.selectNodeContents(button.previousSibling);
    getSelection()?.removeAllRanges();
    getSelection()?.addRange(range);
    notify("The text is selected: copy it with Control-C.");
  }
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let ended;

/**
 * Say something for a few seconds, to screen readers too.
 * @param {string} text
 */
export function notify(text) {
  const place = /** @type {HTMLElement} */ (document.getElementById("notice"));
  clearTimeout(ended);
  place.textContent = text;
  ended = setTimeout(() => place.replaceChildren(), 4000);
}

/**
 * An error as one sentence.
 * @param {any} error
 */
export function failure(error) {
  return h("p", { class: "error", role: "alert" }, error.message);
}

/**
 * A name and its value, for facts of one thing; those without a value are left out.
 * @param {[string, any][]} pairs
 */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", null, known.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/**
 * Ask before something is changed; whether the answer is yes.
 * @param {string} question
 * @param {any} about
 * @param {string} label of the button that does it
 * @returns {Promise<boolean>}
 */
export function confirmed(question, about, label) {
  return new Promise((tell) => {
    const end = (/** @type {boolean} */ answer) => () => (dialog.remove(), tell(answer));
    const yes = h("button", { type: "button", class: "danger", onclick: end(true) }, `${label} now`);
    const no = h("button", { type: "button", onclick: end(false) }, "Keep as is");
    const dialog = h("dialog", { "aria-labelledby": "question" }, h("h2", { id: "question" }, question), h("p", { class: "long" }, about), h("p", { class: "muted" }, "The audit log will have it."), h("div", { class: "actions" }, no, yes));
    dialog.addEventListener("cancel", end(false));
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}

/**
 * A state or a verdict, with a colour by its meaning and never by colour alone.
 * @param {string} word
 */
export function badge(word) {
  return h("span", { class: "badge", "data-word": word }, word.replaceAll("_", " "));
}
