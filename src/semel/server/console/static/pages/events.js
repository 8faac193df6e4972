// Events: partitions, and the events of one partition, followed live.
import { CallError, query, read } from "../api.js";
import { command, empty, failure, h, heading, setText, show, table } from "../dom.js";
import { brief, content, count, json, shellWord, time } from "../format.js";

const PAGE = 100;
const WAIT_MS = 1000;
const MOST = 500;

/**
 * @param {HTMLElement} view
 * @param {{parts: string[], query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  if (route.parts.length) return renderPartition(view, route.parts.join("/"), signal);
  const prefix = route.query.get("prefix") ?? "";
  const after = route.query.get("after") ?? "";
  const box = h("input", { type: "search", "aria-label": "Partitions that begin with", placeholder: "Partitions that begin with", value: prefix });
  const form = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), (location.hash = `#/events${query({ prefix: box.value })}`)) }, box, h("button", { type: "submit" }, "Filter"));
  const found = await read(`/v1/events/partitions${query({ prefix, after, limit: PAGE })}`, { signal });
  show(
    view,
    heading("Events", `One log for all partitions; its last committed id is ${count(found.server_last_committed_id)}, its epoch ${found.log_epoch}.`),
    form,
    table(
      "Partitions",
      [
        { title: "Partition", cell: (one) => h("a", { href: `#/events/${encodeURIComponent(one.partition)}` }, one.partition), kind: "long" },
        { title: "Events", cell: (one) => count(one.events), kind: "num" },
        { title: "First", cell: (one) => count(one.first_committed_id), kind: "num" },
        { title: "Last", cell: (one) => count(one.watermark), kind: "num" },
      ],
      found.partitions,
      prefix ? empty("No partition has such a name.") : empty("No event was submitted yet. Submit one:", `semel events submit room-7 --event '{"type": "note.added"}' --id note-1`),
    ),
    h("div", { class: "more" }, after ? h("a", { href: `#/events${query({ prefix })}` }, "First page") : null, found.has_more ? h("a", { href: `#/events${query({ prefix, after: found.next_after })}` }, "Next page") : null),
  );
}

/**
 * @param {HTMLElement} view
 * @param {string} partition
 * @param {AbortSignal} signal
 */
async function renderPartition(view, partition, signal) {
  const live = h("span", { class: "live" }, "live");
  const list = h("div");
  show(view, heading(partition, "Newest first.", live, h("a", { href: "#/events" }, "All partitions")), list, command(`semel events tail --partition ${shellWord(partition)}`));
  const first = await read(`/v1/events${query({ partition, last: PAGE })}`, { signal });
  /** @type {any[]} */
  let events = [...first.events].sort((a, b) => b.committed_id - a.committed_id);
  let since = Math.max(first.sync_to_committed_id ?? 0, events[0]?.committed_id ?? 0);
  show(list, drawn(events));
  while (!signal.aborted) {
    await new Promise((go) => setTimeout(go, WAIT_MS));
    if (signal.aborted || document.hidden) continue;
    try {
      const more = await read(`/v1/events${query({ partition, since, log_epoch: first.log_epoch, limit: PAGE })}`, { signal });
      if (more.events.length) {
        events = [...more.events.reverse(), ...events].slice(0, MOST);
        show(list, drawn(events));
      }
      since = more.next_since_committed_id ?? since;
      live.className = "live";
      setText(live, "live");
    } catch (error) {
      if (signal.aborted) return;
      live.className = "live off";
      setText(live, "no answer");
      if (error instanceof CallError && error.status === 410) return show(list, failure(error));
    }
  }
}

/** @param {any[]} events */
function drawn(events) {
  return table(
    "Events",
    [
      { title: "Committed id", cell: (one) => count(one.committed_id), kind: "num" },
      { title: "Time", cell: (one) => time(one.status_updated_at), kind: "time" },
      { title: "Id", cell: (one) => h("a", { href: `#/find/${encodeURIComponent(one.id)}` }, brief(one.id, 80)), kind: "name" },
      { title: "Client", cell: (one) => brief(one.client_id, 80), kind: "name" },
      { title: "Type", cell: (one) => brief(one.event?.type ?? "", 120), kind: "name" },
      { title: "Payload", cell: (one) => payload(one), kind: "long" },
    ],
    events,
    empty("No event of this partition is there; the page waits for it."),
  );
}

/** @param {any} one */
function payload(one) {
  const text = brief(one.event?.payload, 120);
  return h("details", null, h("summary", { class: "mono" }, text || "–"), content(`Event ${one.committed_id}`, json(one)));
}
