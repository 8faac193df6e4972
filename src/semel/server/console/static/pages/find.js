// Find: the life of a write by any of its identities, from `/v1/writes/find`.
import { query, read } from "../api.js";
import { badge, empty, facts, h, heading, show } from "../dom.js";
import { ago, brief, offset, shellWord, time } from "../format.js";

/**
 * @param {HTMLElement} view
 * @param {{parts: string[], query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  const id = route.parts[0] ?? "";
  const place = route.query.get("in") ?? "";
  const box = /** @type {HTMLInputElement} */ (document.getElementById("find"));
  if (id && document.activeElement !== box) box.value = id;
  const within = h("input", { type: "text", id: "within", value: place, placeholder: "stream, gateway, principal, ORG/VAULT" });
  const form = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), look(id || box.value.trim(), within.value.trim())) },
    h("label", { for: "within" }, "Only in"), within, h("button", { type: "submit" }, "Find"));
  if (!id) {
    show(view, heading("Find a write", "By idempotency key, job, request, event, transaction or delta id, producer, or stream."), form, empty("Type an identity into the search box at the top; / leads there from every page.", "semel find ID"));
    box.focus();
    return;
  }
  show(view, heading("Find a write", h("code", { class: "long" }, brief(id, 300))), form, h("p", { class: "muted" }, "Looking."));
  const found = await read("/v1/writes/find", { method: "POST", body: place ? { id, in: place } : { id }, signal });
  view.lastChild?.remove();
  const hint = found.complete ? null : h("p", { class: "warning" }, found.hint ?? "Not all places were tried; name one.");
  const none = empty("No write with this identity is remembered, or you may not read it: it did not happen, or its receipt has expired.", `semel find ${shellWord(id)}`);
  view.append(...[hint, ...(found.writes.length ? found.writes.map(drawn) : [none])].filter(Boolean));
}

/**
 * @param {string} id
 * @param {string} place
 */
function look(id, place) {
  if (id) location.hash = `#/find/${encodeURIComponent(id)}${query({ in: place })}`;
}

/** @param {any} one */
function drawn(one) {
  const link = target(one);
  return h(
    "article",
    { class: "write", "aria-label": `${one.surface}, ${one.identity}` },
    h(
      "div",
      { class: "top" },
      h("h2", null, `${one.surface} · ${one.identity.replaceAll("_", " ")}`),
      one.answer ? h("span", null, "a retry gets ", badge(one.answer.verdict), " ", String(one.answer.status ?? "")) : badge("forgotten"),
    ),
    one.in === null ? null : h("p", { class: "muted long" }, "in ", h("code", null, brief(one.in, 300))),
    life(one),
    facts([
      ...Object.entries(one.effect ?? {}).filter(([name]) => name !== "path").map(([name, value]) => /** @type {[string, any]} */ ([name.replaceAll("_", " "), value === null ? null : shown(name, value)])),
      ...Object.entries(one.answer ?? {}).filter(([name]) => !["verdict", "status", ...Object.keys(one.effect ?? {})].includes(name)).map(([name, value]) => /** @type {[string, any]} */ ([`answer: ${name.replaceAll("_", " ")}`, value === null ? null : shown(name, value)])),
    ]),
    link ? h("p", null, h("a", { href: link }, `Open the ${SHOWN_BY[one.surface]}`)) : null,
  );
}

/** What the page behind the link shows. @type {Record<string, string>} */
const SHOWN_BY = { streams: "stream", events: "partition", jobs: "job", ledger: "block", deltas: "row" };

/**
 * @param {string} name
 * @param {any} value
 */
function shown(name, value) {
  if (name.endsWith("offset") && typeof value === "string") return offset(value);
  if (name.endsWith("_at") && typeof value === "string") return time(value);
  if (name === "state") return badge(String(value));
  return typeof value === "object" ? h("code", null, brief(value, 400)) : brief(String(value), 400);
}

/** @param {any} one */
function life(one) {
  const by = one.first?.principal ? h("span", null, " by ", h("strong", null, brief(one.first.principal, 120))) : null;
  const retries = [...(one.retries?.last ?? [])].sort((a, b) => String(a.at).localeCompare(String(b.at)));
  const hidden = (one.retries?.count ?? 0) - retries.length;
  return h(
    "ol",
    { class: "timeline" },
    h("li", { class: "good" }, one.first?.at ? time(one.first.at) : "some time", " ", h("strong", null, "took effect"), by, one.first?.at ? h("span", { class: "muted" }, ` (${ago(one.first.at)})`) : null),
    hidden > 0 ? h("li", null, `${hidden} earlier retries, answered from the receipt`) : null,
    retries.map((retry) => h("li", null, time(retry.at), " retry", retry.principal ? h("span", null, " by ", h("strong", null, brief(retry.principal, 120))) : null, retry.address ? ` from ${retry.address}` : null, ": answered from the receipt")),
    one.retries?.count === 0 ? h("li", { class: "muted" }, "no retry is recorded") : null,
    one.expires_at ? h("li", null, time(one.expires_at), " the receipt expires", h("span", { class: "muted" }, ` (${ago(one.expires_at)})`)) : h("li", { class: "muted" }, "the receipt is kept"),
  );
}

/**
 * The page that shows the effect.
 * @param {any} one
 */
function target(one) {
  const part = encodeURIComponent;
  const effect = one.effect ?? {};
  if (one.surface === "jobs" && effect.job_id) return `#/jobs/${part(effect.job_id)}`;
  if (one.surface === "streams") return `#/streams/${part(one.in ?? one.id ?? "")}`;
  const ledger = /^\/ledger\/v1\/orgs\/(\d+)(?:\/vaults\/(\d+))?/.exec(effect.path ?? "");
  if (ledger && effect.height) return `#/ledger/${ledger[1]}/${ledger[2] ?? "0"}/${effect.height}`;
  if (one.surface === "deltas" && effect.row_id) return `#/deltas/${[one.in, effect.table, effect.row_id].map(part).join("/")}`;
  if (one.surface === "events" && effect.partitions?.length) return `#/events/${part(effect.partitions[0])}`;
  return "";
}
