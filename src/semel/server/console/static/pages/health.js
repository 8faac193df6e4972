// Health: whether a write sent now would be taken, and if not, why and what to do.
import { CallError, every, read } from "../api.js";
import { badge, facts, failure, h, heading, setText, show, table } from "../dom.js";
import { count, duration, size, time } from "../format.js";

/**
 * @param {HTMLElement} view
 * @param {unknown} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  const live = h("span", { class: "live" }, "live");
  const place = h("div");
  show(view, heading("Health", "Asked every two seconds.", live), place);
  let before = "";
  await every(2000, signal, async () => {
    try {
      const [ready, alive, now] = await Promise.all([readiness(signal), read("/livez", { signal }), read("/v1/live", { signal })]);
      const told = JSON.stringify([ready, alive]);
      if (told !== before) show(place, drawn(ready, alive, now));
      before = told;
      numbers(place, now);
      live.className = "live";
      setText(live, "live");
    } catch (error) {
      if (signal.aborted) return;
      live.className = "live off";
      setText(live, "no answer");
      if (!before) show(place, failure(error));
      before = "";
    }
  });
}

/** @param {AbortSignal} signal */
async function readiness(signal) {
  try {
    return await read("/readyz", { signal });
  } catch (error) {
    if (error instanceof CallError && error.told.status === "not_ready") return error.told;
    throw error;
  }
}

/**
 * @param {any} ready
 * @param {any} alive
 * @param {any} now
 */
function drawn(ready, alive, now) {
  const reasons = ready.reasons ?? [];
  return [
    h(
      "div",
      { class: "cards" },
      card("Writes", badge(ready.status), ready.status === "ready" ? "A write sent now is taken." : "A write sent now is refused."),
      card("Audit log", badge(alive.audit ?? "ok"), alive.audit ? "It cannot be written." : "It is written."),
      card("Running since", h("span", { "data-live": "uptime" }), time(now.started_ms)),
    ),
    reasons.length
      ? table(
          "Reasons",
          [
            { title: "Reason", cell: (one) => one.reason },
            { title: "Found", cell: (one) => one.found, kind: "long" },
            { title: "What to do", cell: (one) => one.advice, kind: "long" },
          ],
          reasons,
        )
      : null,
    h("h2", null, "Process"),
    facts([
      ["Version", alive.version],
      ["Namespace", now.namespace],
      ["Connections", h("span", { "data-live": "connections" })],
      ["Live readers", h("span", { "data-live": "readers" })],
      ["Writes waiting", h("span", { "data-live": "queue" })],
      ["Oldest waiting write", h("span", { "data-live": "oldest" })],
    ]),
  ];
}

/**
 * @param {string} name
 * @param {any} value
 * @param {any} about
 */
function card(name, value, about) {
  return h("div", { class: "card" }, h("div", { class: "muted" }, name), h("div", { class: "value" }, value), h("div", { class: "muted" }, about));
}

/**
 * @param {HTMLElement} place
 * @param {any} now
 */
function numbers(place, now) {
  const texts = {
    uptime: duration(Math.round((now.now_ms - now.started_ms) / 1000)),
    connections: count(now.connections),
    readers: count(now.live_readers),
    queue: `${count(now.queue.writes)} (${size(now.queue.bytes)})`,
    oldest: duration(now.queue.oldest_seconds),
  };
  for (const [name, text] of Object.entries(texts)) setText(place.querySelector(`[data-live="${name}"]`), text);
}
