// Parts of the page of one stream: where it was forked from and its forks, and its producers.
import { query, read } from "./api.js";
import { failure, h, show, table } from "./dom.js";
import { brief, count, offset, time } from "./format.js";
import { LongRead, firstOf } from "./long_read.js";

const PAGE = 100;
/** Pages of 1,000 names that the search for forks reads before it asks. */
const MOST_PAGES = 100;

/** @param {string} name */
export const streamLink = (name) => h("a", { href: `#/streams/${encodeURIComponent(name)}` }, brief(name, 200));

/**
 * @param {string} name
 * @param {AbortSignal} signal
 */
export async function forksOf(name, signal) {
  const { streams } = await read(`/v1/streams${query({ prefix: name, limit: 1 })}`, { signal });
  const own = streams.find((/** @type {any} */ one) => one.name === name);
  if (!own || (!own.forked_from && !own.forks)) return null;
  const list = h("div");
  return h("section", null, h("h2", null, "Forks"), own.forked_from ? parent(own.forked_from) : null, own.forks ? children(name, own.forks, list, signal) : null, list);
}

/** @param {any} from */
function parent(from) {
  const more = from.sub_offset ? ` and ${count(from.sub_offset)} more of the next append` : "";
  return h("p", { class: "long" }, "Forked from ", from.name === null ? "a stream that you may not read" : streamLink(from.name), " at offset ", h("code", null, offset(from.offset)), `${more}.`);
}

/**
 * @param {string} name
 * @param {number} number
 * @param {HTMLElement} list
 * @param {AbortSignal} signal
 */
function children(name, number, list, signal) {
  /** @type {any[]} */
  const found = [];
  let [after, pages] = ["", 0];
  const step = async () => {
    const page = await read(`/v1/streams${query({ source: name, after })}`, { signal });
    pages += 1;
    found.push(...page.streams);
    after = page.after ?? "";
    const hasMore = Boolean(page.after) && found.length < number;
    const looked = `${count(pages * 1000)} names were looked at`;
    const rest = count(number - found.length);
    const told = found.length >= number ? "" : hasMore ? `${rest} not found yet; ${looked}.` : `${rest} not among the streams that you may read: deleted ones count until they are freed.`;
    return { hasMore, told };
  };
  const search = new LongRead(step, signal, MOST_PAGES, () => show(list, found.length ? firstOf(found, drawnForks) : null));
  search.run();
  return search.element;
}

/** @param {any[]} forks */
function drawnForks(forks) {
  return table(
    "Forks",
    [
      { title: "Fork", cell: (one) => streamLink(one.name), kind: "long" },
      { title: "Forked at", cell: (one) => offset(one.forked_from.offset), kind: "num" },
      { title: "Tail", cell: (one) => offset(one.next_offset), kind: "num" },
      { title: "Created", cell: (one) => time(one.created_ms), kind: "time" },
    ],
    forks,
  );
}

/**
 * @param {string} name
 * @param {AbortSignal} signal
 */
export async function producersOf(name, signal) {
  /** @type {any[]} */
  const found = [];
  let after = "";
  const list = h("div");
  const more = h("button", { type: "button", onclick: () => next().catch((error) => show(list, failure(error))) }, "More producers");
  const next = async () => {
    const page = await read(`/v1/streams/producers${query({ stream: name, after, limit: PAGE })}`, { signal });
    found.push(...page.producers);
    after = page.after ?? "";
    show(list, drawnProducers(found), after ? h("div", { class: "more" }, more) : null);
  };
  await next();
  return found.length ? list : h("p", { class: "muted" }, "No producer has written to this stream.");
}

/** @param {any[]} producers */
function drawnProducers(producers) {
  return table(
    "Producers",
    [
      { title: "Producer", cell: (one) => one.id ?? h("span", { class: "muted" }, "an id of more than 32 bytes, SHA-256 ", h("code", null, one.key.slice(2))), kind: "long" },
      { title: "Epoch", cell: (one) => count(one.epoch), kind: "num" },
      { title: "Last sequence", cell: (one) => count(one.seq), kind: "num" },
    ],
    producers,
  );
}
