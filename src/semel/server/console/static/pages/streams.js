// Streams: the list, and one stream with its content, live tail, producers and forks.
import { path, query, read } from "../api.js";
import { badge, empty, h, heading, show, table } from "../dom.js";
import { offset, time } from "../format.js";
import { renderStream } from "../stream.js";

const PAGE = 100;

/**
 * @param {HTMLElement} view
 * @param {{parts: string[], query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  if (route.parts[0] === "-subscriptions") return renderSubscription(view, route.parts[1] ?? "", signal);
  if (route.parts.length) return renderStream(view, route.parts.join("/"), signal);
  const prefix = route.query.get("prefix") ?? "";
  const after = route.query.get("after") ?? "";
  const box = h("input", { type: "search", "aria-label": "Names that begin with", placeholder: "Names that begin with", value: prefix });
  const id = h("input", { type: "text", "aria-label": "Id of a subscription", placeholder: "Id of a subscription" });
  const list = h("div");
  const form = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), (location.hash = `#/streams${query({ prefix: box.value })}`)) }, box, h("button", { type: "submit" }, "Filter"));
  const other = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), (location.hash = `#/streams/-subscriptions/${encodeURIComponent(id.value.trim())}`)) }, id, h("button", { type: "submit" }, "Show subscription"));
  show(view, heading("Streams", "In the order of their names."), h("div", { class: "side" }, form, other), list);
  const { streams, after: next } = await read(`/v1/streams${query({ prefix, after, limit: PAGE })}`, { signal });
  show(
    list,
    table(
      "Streams",
      [
        { title: "Name", cell: (one) => h("a", { href: `#/streams/${encodeURIComponent(one.name)}` }, one.name), kind: "long" },
        { title: "Type", cell: (one) => one.content_type, kind: "name" },
        { title: "State", cell: (one) => badge(one.closed ? "closed" : "open") },
        { title: "Tail", cell: (one) => offset(one.next_offset), kind: "num" },
        { title: "Created", cell: (one) => time(one.created_ms), kind: "time" },
        { title: "Changed", cell: (one) => time(one.updated_ms), kind: "time" },
      ],
      streams,
      prefix ? empty("No stream has such a name.") : empty("There is no stream yet. Create one:", "semel streams create greetings --type application/json", `semel streams append greetings '{"hello": "world"}' --key first`),
    ),
    h("div", { class: "more" }, after ? h("a", { href: `#/streams${query({ prefix })}` }, "First page") : null, next ? h("a", { href: `#/streams${query({ prefix, after: next })}` }, "Next page") : null),
  );
}

/**
 * @param {HTMLElement} view
 * @param {string} id
 * @param {AbortSignal} signal
 */
async function renderSubscription(view, id, signal) {
  const found = await read(path`/v1/stream/__ds/subscriptions/${id}`, { signal });
  const links = found.streams ?? found.links ?? [];
  const rest = Object.entries(found).filter(([name]) => !["streams", "links"].includes(name));
  show(
    view,
    heading(`Subscription ${id}`, "", h("a", { href: "#/streams" }, "All streams")),
    table(
      "Facts",
      [
        { title: "Member", cell: ([name]) => name },
        { title: "Value", cell: ([, value]) => h("code", null, typeof value === "string" ? value : JSON.stringify(value)), kind: "long" },
      ],
      rest,
    ),
    h("h2", null, "Streams"),
    table(
      "Streams of the subscription",
      [
        { title: "Stream", cell: (one) => one.path ?? one.stream ?? one.name ?? String(one), kind: "long" },
        { title: "Acknowledged", cell: (one) => h("code", null, one.acked_offset ?? one.offset ?? "–"), kind: "id" },
      ],
      links,
      empty("No stream is linked."),
    ),
  );
}
