// The state of a place: its keys, and one key after a block, present or absent, with the commands that prove it.
import { CallError, query, read } from "./api.js";
import { badge, empty, facts, h, heading, show, table } from "./dom.js";
import { brief, content, count, shellWord, time } from "./format.js";
import { chainHash, fromBase64, hashHex, placeOf, proofCommands, spelled } from "./ledger_place.js";

const PAGE = 100;

/**
 * @param {string} org
 * @param {string} vault
 * @param {Record<string, any>} asked
 */
export const stateLink = (org, vault, asked) => `#/ledger/${org}/${vault}/state${query(asked)}`;

/**
 * @param {HTMLElement} view
 * @param {string} org
 * @param {string} vault
 * @param {URLSearchParams} asked
 * @param {AbortSignal} signal
 */
export async function renderState(view, org, vault, asked, signal) {
  const height = asked.get("height") ?? "";
  const key = asked.get("key");
  const fields = form(org, vault, key ?? "", height);
  const back = h("a", { href: `#/ledger/${org}/${vault}` }, "All blocks");
  if (key !== null) return renderKey(view, org, vault, key, height, fields, signal);
  const { entities = [], nextPageToken } = await read(`${placeOf(org, vault)}/entities${query({ limit: PAGE, atHeight: height, pageToken: asked.get("pageToken") })}`, { signal });
  show(
    view,
    heading("State", height ? `Keys after block ${count(Number(height))}.` : "Keys as they are now.", back),
    fields,
    table(
      "Keys",
      [
        { title: "Key", cell: (one) => h("a", { href: stateLink(org, vault, { key: one.key, height }) }, brief(one.key, 200)), kind: "long" },
        { title: "Value", cell: (one) => brief(textOf(fromBase64(one.value ?? "")), 160), kind: "long" },
        { title: "Set by block", cell: (one) => h("a", { href: `#/ledger/${org}/${vault}/${one.version}` }, count(Number(one.version))), kind: "num" },
        { title: "Expires", cell: (one) => expiry(one.expiresAt), kind: "time" },
      ],
      entities,
      empty("There is no key here.", `semel ledger write ${spelled(org, vault)} --client me --sequence 1 --set key=value`),
    ),
    h("div", { class: "more" }, asked.get("pageToken") ? h("a", { href: stateLink(org, vault, { height }) }, "First page") : null, nextPageToken ? h("a", { href: stateLink(org, vault, { height, pageToken: nextPageToken }) }, "Next page") : null),
  );
}

/**
 * @param {string} org
 * @param {string} vault
 * @param {string} key
 * @param {string} height
 */
function form(org, vault, key, height) {
  const name = h("input", { type: "text", "aria-label": "Key", placeholder: "Key", value: key });
  const block = h("input", { type: "text", "aria-label": "After block", placeholder: "After block; empty is now", value: height });
  const go = (/** @type {Event} */ event) => {
    event.preventDefault();
    location.hash = stateLink(org, vault, { key: name.value, height: block.value.trim() });
  };
  return h("form", { class: "filters", onsubmit: go }, name, block, h("button", { type: "submit" }, "Look up"));
}

/** @param {any} seconds */
const expiry = (seconds) => (Number(seconds ?? 0) ? time(Number(seconds) * 1000) : "never");

/**
 * The bytes as text, or as hexadecimal numbers if they are none.
 * @param {Uint8Array} bytes
 */
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return [...bytes].map((one) => one.toString(16).padStart(2, "0")).join(" ");
  }
}

/**
 * @param {string} url
 * @param {AbortSignal} signal
 */
async function provedRead(url, signal) {
  try {
    return await read(url, { signal });
  } catch (error) {
    if (error instanceof CallError && error.status === 404 && error.told.stateProof) return error.told;
    throw error;
  }
}

/**
 * @param {HTMLElement} view
 * @param {string} org
 * @param {string} vault
 * @param {string} key
 * @param {string} height
 * @param {any} fields
 * @param {AbortSignal} signal
 */
async function renderKey(view, org, vault, key, height, fields, signal) {
  const place = placeOf(org, vault);
  const proof = await provedRead(`${place}/entities/${encodeURIComponent(key)}${query({ proof: "true", atHeight: height })}`, signal);
  const { stateProof: state, blockHeader: header } = proof;
  const hash = await chainHash(place, Number(header.height), signal);
  const isThere = Number(state.version) > 0;
  const at = `block ${count(Number(header.height))}`;
  show(
    view,
    heading(brief(key, 200), ["State after ", h("a", { href: `#/ledger/${org}/${vault}/${header.height}` }, at), height ? "." : ", the newest one."], h("a", { href: stateLink(org, vault, { height }) }, "All keys"), h("a", { href: `#/ledger/${org}/${vault}` }, "All blocks")),
    fields,
    h("p", null, badge(isThere ? "present" : "absent"), isThere ? null : ` Nothing is under this key after ${at}.`),
    isThere ? facts([["Set by block", h("a", { href: `#/ledger/${org}/${vault}/${state.version}` }, count(Number(state.version)))], ["Expires", expiry(state.expiresAt)]]) : null,
    isThere ? [h("h2", null, "Value"), content("Value", textOf(fromBase64(state.value)))] : null,
    isThere && proof.value === undefined ? h("p", { class: "warning" }, "The entry has expired: reads leave its value out, and it counts in the state until it is removed.") : null,
    h("h2", null, "Block"),
    facts([["Time", time(header.timestamp)], ["Hash", h("code", null, hash)], ["State root", h("code", null, hashHex(header.stateRoot))]]),
    proofCommands(`semel ledger read ${spelled(org, vault)} ${shellWord(key)} --at-height ${header.height} --proof proof.json`, spelled(org, vault), header.height, hash, key),
  );
}
