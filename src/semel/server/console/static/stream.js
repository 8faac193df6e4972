// One stream: its facts, its content, which is followed live, its forks and producers, and a look-up of keys.
import { CallError, query, send } from "./api.js";
import { command, facts, failure, h, heading, notify, setText, show } from "./dom.js";
import { content, count, cut, fullOffset, shellWord, size, time } from "./format.js";
import { forksOf, producersOf } from "./stream_parts.js";

const MOST_CHARACTERS = 200_000;
/** Characters of content that the page keeps; older ones leave it. */

/**
 * @param {HTMLElement} view
 * @param {string} name
 * @param {AbortSignal} signal
 */
export async function renderStream(view, name, signal) {
  const url = `/v1/stream/${name.split("/").map(encodeURIComponent).join("/")}`;
  const [{ headers }, forks, producers] = await Promise.all([send(url, { method: "HEAD", signal }), forksOf(name, signal), producersOf(name, signal)]);
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
      ["Tail", fullOffset(fact("stream-next-offset"))],
      ["Earliest offset", fact("stream-earliest-offset") ? fullOffset(fact("stream-earliest-offset")) : null],
      ["Ends after idle time", fact("stream-ttl") ? `${count(Number(fact("stream-ttl")))} s` : null],
      ["Ends at", fact("stream-expires-at") ? time(fact("stream-expires-at")) : null],
      ["Retention by age", fact("stream-retention-age") ? `${fact("stream-retention-age")} s` : null],
      ["Retention by size", fact("stream-retention-bytes") ? size(Number(fact("stream-retention-bytes"))) : null],
    ]),
    h("h2", null, "Content"),
    told,
    text,
    forks,
    h("h2", null, "Producers"),
    producers,
    lookups(url),
    h("h2", null, "Command"),
    command(`semel streams tail ${shellWord(name)} --from-start`),
  );
  const isText = /^(text\/|application\/(json|x-ndjson|xml))/.test(fact("content-type") ?? "");
  await follow(url, signal, { text, told, live, isText });
}

/** @param {string} url */
function lookups(url) {
  const key = h("input", { type: "text", "aria-label": "Idempotency key", placeholder: "Idempotency key" });
  const answer = h("p", { class: "long", "aria-live": "polite" });
  const ask = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!key.value) return;
    try {
      const found = (await send(url, { method: "HEAD", headers: { "Lookup-Key": key.value } })).headers.get("idempotency-offset");
      show(answer, found ? `Stored: the append with this key ended at ${found}.` : "No append with this key is remembered.");
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      show(answer, error.status === 400 ? "The server does not take such a value." : error.message);
    }
  };
  return [h("h2", null, "Look up a key"), h("form", { class: "filters", onsubmit: ask }, key, h("button", { type: "submit" }, "Look up")), answer];
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
