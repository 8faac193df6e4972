// Subscriptions: the list with the state of each, and one with its streams and how far each is behind.
import { path, query, read } from "./api.js";
import { badge, command, empty, facts, h, heading, show, table } from "./dom.js";
import { brief, count, duration, offset, shellWord, size, time } from "./format.js";
import { streamLink } from "./stream_parts.js";

const PAGE = 100;

/** @param {string} [id] */
const link = (id) => `#/streams${query(id === undefined ? { subscriptions: 1 } : { subscription: id })}`;

/**
 * @param {HTMLElement} view
 * @param {URLSearchParams} asked
 * @param {any} tabs
 * @param {AbortSignal} signal
 */
export async function renderSubscriptions(view, asked, tabs, signal) {
  const after = asked.get("after") ?? "";
  const { subscriptions, after: next } = await read(`/v1/streams/subscriptions${query({ after, limit: PAGE })}`, { signal });
  show(
    view,
    heading("Streams", "Subscriptions: cursors over many streams that the server keeps, and that wake a receiver."),
    tabs,
    table(
      "Subscriptions",
      [
        { title: "Subscription", cell: (one) => h("a", { href: link(one.id) }, brief(one.id, 200)), kind: "name" },
        { title: "Status", cell: (one) => badge(one.status) },
        { title: "State", cell: (one) => state(one.wake), kind: "name" },
        { title: "Follows", cell: (one) => (one.pattern === null ? "named streams" : h("code", null, brief(one.pattern, 200))), kind: "name" },
        { title: "Wakes", cell: (one) => wakes(one), kind: "long" },
        { title: "Created", cell: (one) => time(one.created_at), kind: "time" },
      ],
      subscriptions,
      empty("There is no subscription that you may read. Create one:", "semel streams subscriptions create mailer --pattern 'orders/*' --wake-stream wakes"),
    ),
    h("div", { class: "more" }, after ? h("a", { href: link() }, "First page") : null, next ? h("a", { href: `#/streams${query({ subscriptions: 1, after: next })}` }, "Next page") : null),
  );
}

/** @param {any} one */
const wakes = (one) => (one.webhook_url === null ? ["stream ", streamLink(one.wake_stream)] : ["webhook ", h("code", null, brief(one.webhook_url, 200))]);

/** @param {any} wake */
function state(wake) {
  const wait = wake.next_action_in_ms === null ? "" : wake.next_action_in_ms === 0 ? "now" : `in ${duration(wake.next_action_in_ms / 1000)}`;
  const tries = wake.attempts ? `, after ${count(wake.attempts)} failed ${wake.attempts === 1 ? "attempt" : "attempts"}` : "";
  if (wake.phase === "idle") return wait ? `idle, work is due ${wait}` : "idle";
  if (wake.phase === "waking") return `waking; next attempt ${wait || "unknown"}${tries}`;
  return ["leased", wake.worker ? [" by ", h("strong", null, brief(wake.worker, 120))] : null, wait ? `; the lease ends ${wait}` : ""];
}

/**
 * @param {HTMLElement} view
 * @param {string} id
 * @param {any} tabs
 * @param {AbortSignal} signal
 */
export async function renderSubscription(view, id, tabs, signal) {
  const found = await read(path`/v1/stream/__ds/subscriptions/${id}`, { signal });
  const behind = found.streams.filter((/** @type {any} */ one) => lag(one) > 0);
  const bytes = behind.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + lag(one), 0);
  const refresh = h("button", { type: "button", class: "quiet", onclick: () => dispatchEvent(new Event("hashchange")) }, "Refresh");
  show(
    view,
    heading(`Subscription ${brief(id, 200)}`, found.description === null ? "" : brief(found.description, 400), h("a", { href: link() }, "All subscriptions"), refresh),
    tabs,
    found.status === "failed" ? h("p", { class: "error" }, `The last attempt to wake its receiver has failed; ${count(found.wake.attempts)} in a row. The server keeps no reason: the log of the receiver has it.`) : null,
    facts([
      ["Status", badge(found.status)],
      ["State", state(found.wake)],
      ["Behind", behind.length ? `${size(bytes)} in ${count(behind.length)} of ${count(found.streams.length)} streams` : "nothing: all is acknowledged"],
      ["Wakes", wakes({ webhook_url: found.webhook?.url ?? null, wake_stream: found.wake_stream ?? null })],
      ["Pattern", found.pattern === null ? null : h("code", null, brief(found.pattern, 400))],
      ["Wakes so far", count(found.wake.generation)],
      ["Lease", duration(found.lease_ttl_ms / 1000)],
      ["Created", time(found.created_at)],
      ["Webhooks are signed with", found.webhook ? h("code", null, `${found.webhook.signing.alg} ${found.webhook.signing.kid}`) : null],
    ]),
    h("h2", null, "Streams"),
    found.streams_truncated ? h("p", { class: "warning" }, `It has more streams than these ${count(found.streams.length)}.`) : null,
    table(
      "Streams of the subscription",
      [
        { title: "Stream", cell: (one) => streamLink(one.path), kind: "long" },
        { title: "Linked by", cell: (one) => (one.link_type === "glob" ? "pattern" : "name") },
        { title: "Acknowledged", cell: (one) => offset(one.acked_offset), kind: "num" },
        { title: "Tail", cell: (one) => (one.tail_offset === null ? "no such stream" : offset(one.tail_offset)), kind: "num" },
        { title: "Behind", cell: (one) => (lag(one) ? size(lag(one)) : "–"), kind: "num" },
      ],
      [...found.streams].sort((a, b) => lag(b) - lag(a)),
      h("p", { class: "muted" }, "No stream is linked yet."),
    ),
    h("h2", null, "Command"),
    command(`semel streams subscriptions show ${shellWord(id)}`),
  );
}

/**
 * The bytes after the acknowledged offset.
 * @param {any} one
 */
function lag(one) {
  const place = (/** @type {string} */ text) => Number(text.split("_")[1]);
  return one.tail_offset === null ? 0 : Math.max(0, place(one.tail_offset) - place(one.acked_offset));
}
