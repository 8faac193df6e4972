// One stream: its facts, a look-up of producers and keys, and its content, which is followed live.
import { CallError, query, send } from "./api.js";
import { command, facts, failure, h, heading, notify, setText, show } from "./dom.js";
import { content, count, cut, shellWord, size, time } from "./format.js";

const MOST_CHARACTERS = 200_000;
/** Characters of content that the page keeps; older ones leave it. */

/**
 * @param {HTMLElement} view
 * @param {string} name
 * @param {AbortSignal} signal
 */
export async function renderStream(view, name, signal) {
  const url = `/v1/stream/${name.split("/").map(encodeURIComponent).join("/")}`;
  const { headers } = await send(url, { method: "HEAD", signal });
  const fact = (/** @type {string} */ field) => headers.get(field);
  const live = h("span", { class: "live" }, "live");
  const text = content("Content", "");
  const told = h("p", { class: "muted" });
  show(
    view,
    heading(name, "", live, h("a", { href: "#/streams" }, "All streams")),
    facts([
      ["Type", fact("content-type")],
      ["State", fact("stream-closed") ? "closed" : "open"],
      ["Tail", h("code", null, fact("stream-next-offset"))],
      ["Earliest offset", fact("stream-earliest-offset")],
      ["Ends after idle time", fact("stream-ttl") ? `${count(Number(fact("stream-ttl")))} s` : null],
      ["Ends at", fact("stream-expires-at") ? time(fact("stream-expires-at")) : null],
      ["Retention by age", fact("stream-retention-age") ? `${fact("stream-retention-age")} s` : null],
      ["Retention by size", fact("stream-retention-bytes") ? size(Number(fact("stream-retention-bytes"))) : null],
      ["Forked from", fact("stream-forked-from")],
    ]),
    lookups(url),
    h("h2", null, "Content"),
    told,
    text,
    h("h2", null, "Command"),
    command(`semel streams tail ${shellWord(name)} --from-start`),
  );
  const isText = /^(text\/|application\/(json|x-ndjson|xml))/.test(fact("content-type") ?? "");
  await follow(url, signal, { text, told, live, isText });
}

/** @param {string} url */
function lookups(url) {
  const [key, producer] = ["Idempotency key", "Producer id"].map((label) => h("input", { type: "text", "aria-label": label, placeholder: label }));
  const answer = h("p", { class: "long", "aria-live": "polite" });
  const ask = (/** @type {string} */ field, /** @type {any} */ box, /** @type {(found: Headers) => string} */ say) => async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!box.value) return;
    try {
      show(answer, say((await send(url, { method: "HEAD", headers: { [field]: box.value } })).headers));
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      show(answer, error.status === 400 ? "The server does not take such a value." : error.message);
    }
  };
  const ofKey = (/** @type {Headers} */ found) => (found.get("idempotency-offset") ? `Stored: the append with this key ended at ${found.get("idempotency-offset")}.` : "No append with this key is remembered.");
  const ofProducer = (/** @type {Headers} */ found) => (found.get("producer-epoch") ? `Epoch ${found.get("producer-epoch")}, highest accepted sequence ${found.get("producer-seq") ?? "none"}.` : "This producer has not written here.");
  return [
    h("h2", null, "Keys and producers"),
    h("div", { class: "side" }, h("form", { class: "filters", onsubmit: ask("Lookup-Key", key, ofKey) }, key, h("button", { type: "submit" }, "Look up key")), h("form", { class: "filters", onsubmit: ask("Lookup-Producer", producer, ofProducer) }, producer, h("button", { type: "submit" }, "Look up producer"))),
    answer,
  ];
}

/**
 * Read from the beginning, then wait for more, until the page is left or the stream is closed.
 * @param {string} url
 * @param {AbortSignal} signal
 * @param {{text: HTMLElement, told: HTMLElement, live: HTMLElement, isText: boolean}} parts
 */
async function follow(url, signal, { text, told, live, isText }) {
  let offset = "-1";
  let cursor = "";
  let isLive = false;
  let bytes = 0;
  while (!signal.aborted) {
    try {
      const answer = await send(`${url}${query({ offset, live: isLive ? "long-poll" : "", cursor: isLive ? cursor : "" })}`, { signal });
      if (answer.status === 200) {
        const part = await answer.arrayBuffer();
        bytes += part.byteLength;
        append(text, isText ? new TextDecoder().decode(part) : hex(part));
      }
      offset = answer.headers.get("stream-next-offset") ?? offset;
      cursor = answer.headers.get("stream-cursor") ?? "";
      isLive = isLive || answer.headers.get("stream-up-to-date") === "true";
      setText(told, `${size(bytes)} read, up to ${offset}.`);
      if (bytes === 0 && isLive) setText(told, "Nothing was appended yet; the page waits for it.");
      if (answer.headers.get("stream-closed")) {
        setText(live, "closed");
        return;
      }
      live.className = "live";
      setText(live, isLive ? "live" : "reading");
    } catch (error) {
      if (signal.aborted) return;
      live.className = "live off";
      setText(live, "no answer");
      if (error instanceof CallError && error.status >= 400 && error.status < 500) {
        told.replaceWith(failure(error));
        return;
      }
      notify(error instanceof Error ? error.message : "The stream cannot be read.");
      await new Promise((go) => setTimeout(go, 2000));
    }
  }
}

/**
 * @param {HTMLElement} place
 * @param {string} more
 */
function append(place, more) {
  const all = (place.textContent ?? "") + more;
  place.textContent = all.length > MOST_CHARACTERS ? `…${all.slice(-MOST_CHARACTERS)}` : all;
  place.scrollTop = place.scrollHeight;
}

/** @param {ArrayBuffer} bytes */
function hex(bytes) {
  const shown = [...new Uint8Array(bytes.slice(0, 4096))].map((one) => one.toString(16).padStart(2, "0")).join(" ");
  return cut(`${shown}${bytes.byteLength > 4096 ? ` … ${count(bytes.byteLength)} bytes` : ""}\n`);
}
