// Audit: the latest lines of the audit log.
import { every, isAdmin, query, read } from "../api.js";
import { empty, failure, h, heading, setText, show, table } from "../dom.js";
import { brief, time } from "../format.js";

const LINES = 200;
/** Events that an operator looks for first; others can be typed. */
const KNOWN = ["AUTH_FAILURE", "IDEMPOTENCY_KEY_COLLISION", "IDEMPOTENCY_HIT", "LEASE_FENCED", "DLQ_ENQUEUE", "JOB_CANCELLED", "JOB_REVIVED", "TOKEN_CREATED", "TOKEN_REVOKED"];

/**
 * @param {HTMLElement} view
 * @param {{query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  const event = route.query.get("event") ?? "";
  const live = h("span", { class: "live" }, "live");
  const title = heading("Audit", "The latest lines, newest first. The files keep more.", live);
  if (!isAdmin()) {
    show(view, title, empty("The audit log needs a token with the admin role and without scopes.", "semel token create NAME --role admin"));
    return;
  }
  const box = h("input", { type: "search", "aria-label": "Event", placeholder: "Event", value: event });
  const go = (/** @type {string} */ name) => (location.hash = `#/audit${query({ event: name })}`);
  const form = h("form", { class: "filters", onsubmit: (/** @type {Event} */ sent) => (sent.preventDefault(), go(box.value.trim().toUpperCase())) }, box, h("button", { type: "submit" }, "Filter"), event ? h("button", { type: "button", class: "quiet", onclick: () => go("") }, "All events") : null);
  const list = h("div");
  show(view, title, form, list);
  let before = "";
  await every(3000, signal, async () => {
    try {
      const { lines } = await read(`/v1/audit${query({ limit: LINES, event })}`, { signal });
      const told = JSON.stringify([lines.length, lines[0]]);
      if (told !== before) show(list, drawn(lines, event));
      before = told;
      live.className = "live";
      setText(live, "live");
    } catch (error) {
      if (signal.aborted) return;
      live.className = "live off";
      setText(live, "no answer");
      if (!before) show(list, failure(error));
    }
  });
}

/**
 * @param {any[]} lines
 * @param {string} event
 */
function drawn(lines, event) {
  return table(
    "Audit lines",
    [
      { title: "Time", cell: (one) => time(one.ts), kind: "time" },
      { title: "Event", cell: (one) => h("a", { href: `#/audit${query({ event: one.event })}` }, one.event) },
      { title: "Details", cell: (one) => details(one.details), kind: "long" },
    ],
    lines,
    empty(event ? `No line of ${event} is among the latest; known events are ${KNOWN.slice(0, 5).join(", ")} and others.` : "No line has been written yet.", "semel audit watch"),
  );
}

/** @param {Record<string, any>} values */
function details(values) {
  return Object.entries(values).map(([name, value]) => h("span", { class: "pair" }, h("span", { class: "muted" }, name), " ", brief(value, 300)));
}
