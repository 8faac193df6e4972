// Streams: the list. One stream is shown by stream.js, subscriptions by subscriptions.js.
import { query, read } from "../api.js";
import { badge, empty, h, heading, show, table } from "../dom.js";
import { brief, offset, time } from "../format.js";
import { renderStream } from "../stream.js";
import { streamLink } from "../stream_parts.js";
import { renderSubscription, renderSubscriptions } from "../subscriptions.js";

const PAGE = 100;

/**
 * @param {HTMLElement} view
 * @param {{parts: string[], query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  if (route.parts.length) return renderStream(view, route.parts.join("/"), signal);
  const id = route.query.get("subscription");
  if (id !== null) return renderSubscription(view, id, tabs(true), signal);
  if (route.query.get("subscriptions")) return renderSubscriptions(view, route.query, tabs(true), signal);
  const prefix = route.query.get("prefix") ?? "";
  const after = route.query.get("after") ?? "";
  const box = h("input", { type: "search", "aria-label": "Names that begin with", placeholder: "Names that begin with", value: prefix });
  const list = h("div");
  const form = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), (location.hash = `#/streams${query({ prefix: box.value })}`)) }, box, h("button", { type: "submit" }, "Filter"));
  show(view, heading("Streams", "In the order of their names."), tabs(false), form, list);
  const { streams, after: next } = await read(`/v1/streams${query({ prefix, after, limit: PAGE })}`, { signal });
  show(
    list,
    table(
      "Streams",
      [
        { title: "Name", cell: (one) => [streamLink(one.name), one.forked_from ? [" ", badge("fork")] : null], kind: "long" },
        { title: "Type", cell: (one) => brief(one.content_type, 40), kind: "id" },
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

/** @param {boolean} isOther */
function tabs(isOther) {
  const tab = (/** @type {string} */ title, /** @type {string} */ href, /** @type {boolean} */ isHere) => h("a", { href, "aria-current": isHere ? "page" : null }, title);
  return h("nav", { class: "tabs", "aria-label": "Kinds" }, tab("Streams", "#/streams", !isOther), tab("Subscriptions", "#/streams?subscriptions=1", isOther));
}
