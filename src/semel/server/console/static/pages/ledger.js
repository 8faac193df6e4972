// Ledger: organizations, their places, the blocks of one place, and proofs that the page itself checks. The state of a
// place is shown by ledger_state.js.
import { isAdmin, path, query, read } from "../api.js";
import { badge, command, empty, facts, failure, h, heading, show, table } from "../dom.js";
import { brief, content, count, json, time } from "../format.js";
import { blockHash, brokenLink, canHash, checkedProof, hashHex } from "../ledger_hashes.js";
import { placeOf, spelled, trustedHash } from "../ledger_place.js";
import { renderState, stateLink } from "../ledger_state.js";

const PAGE = 50;
const CHECKED = 1000;
/** Blocks that one check of the chain reads, in pages. */

/**
 * @param {HTMLElement} view
 * @param {{parts: string[], query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  const [org, vault, height] = route.parts;
  if (height === "state") return renderState(view, org, vault, route.query, signal);
  if (height) return renderBlock(view, org, vault, height, signal);
  if (vault) return renderPlace(view, org, vault, Number(route.query.get("to") ?? 0), signal);
  if (org) return renderOrg(view, org, signal);
  const { organizations = [], nextPageToken } = await read(`/ledger/v1/orgs${query({ pageToken: route.query.get("pageToken") })}`, { signal });
  show(
    view,
    heading("Ledger", "Organizations that you may read."),
    table(
      "Organizations",
      [
        { title: "Organization", cell: (one) => h("a", { href: `#/ledger/${one.slug.slug}` }, one.slug.slug) },
        { title: "Name", cell: (one) => brief(one.name), kind: "long" },
        { title: "Status", cell: (one) => badge(one.status.replace("ORGANIZATION_STATUS_", "").toLowerCase()) },
        { title: "Entries", cell: (one) => count(Number(one.entries)), kind: "num" },
      ],
      organizations,
      empty(isAdmin() ? "There is no organization yet. Make one:" : "There is no organization that you may read.", "semel ledger org create shop --key the-shop"),
    ),
    nextPageToken ? h("div", { class: "more" }, h("a", { href: `#/ledger${query({ pageToken: nextPageToken })}` }, "Next page")) : null,
  );
}

/**
 * @param {HTMLElement} view
 * @param {string} org
 * @param {AbortSignal} signal
 */
async function renderOrg(view, org, signal) {
  const [about, { vaults = [] }] = await Promise.all([read(path`/ledger/v1/orgs/${org}`, { signal }), read(path`/ledger/v1/orgs/${org}/vaults`, { signal })]);
  const own = { vault: { slug: "0" }, height: "", status: "" };
  show(
    view,
    heading(`Organization ${org}`, brief(about.name), h("a", { href: "#/ledger" }, "All organizations")),
    table(
      "Places",
      [
        { title: "Place", cell: (one) => h("a", { href: `#/ledger/${org}/${one.vault.slug}` }, one.vault.slug === "0" ? "the organization itself" : `vault ${one.vault.slug}`) },
        { title: "Height", cell: (one) => (one.height ? count(Number(one.height)) : "–"), kind: "num" },
        { title: "Status", cell: (one) => (one.status ? badge(one.status.replace("VAULT_STATUS_", "").toLowerCase()) : "–") },
      ],
      [own, ...vaults],
    ),
  );
}

/**
 * @param {HTMLElement} view
 * @param {string} org
 * @param {string} vault
 * @param {number} to
 * @param {AbortSignal} signal
 */
async function renderPlace(view, org, vault, to, signal) {
  const place = placeOf(org, vault);
  const tip = await read(`${place}/tip`, { signal });
  const top = Number(tip.height);
  const end = to > 0 ? Math.min(to, top) : top;
  const start = Math.max(1, end - PAGE + 1);
  const { blocks = [] } = top ? await read(`${place}/blocks${query({ from: start, to: end })}`, { signal }) : {};
  const told = h("div", { "aria-live": "polite" });
  const check = h("button", { type: "button", onclick: () => checkChain(place, top, tip, told, signal), disabled: !top || !canHash() }, "Check the chain");
  show(
    view,
    heading(vault === "0" ? `Organization ${org}, its own place` : `Vault ${vault}`, "Blocks, newest first.", h("a", { href: `#/ledger/${org}` }, `Organization ${org}`), h("a", { href: stateLink(org, vault, {}) }, "State and its proofs"), check),
    facts([["Height", count(top)], ["Hash of the tip", h("code", null, hashHex(tip.blockHash))], ["State root", h("code", null, hashHex(tip.stateRoot))]]),
    canHash() ? null : h("p", { class: "warning" }, "This browser computes hashes only over https or on loopback, so that nothing can be checked here."),
    told,
    table(
      "Blocks",
      [
        { title: "Height", cell: (one) => h("a", { href: `#/ledger/${org}/${vault}/${one.header.height}` }, count(Number(one.header.height))), kind: "num" },
        { title: "Time", cell: (one) => time(one.header.timestamp), kind: "time" },
        { title: "Client", cell: (one) => brief(one.transactions?.[0]?.clientId?.id ?? "–"), kind: "name" },
        { title: "Sequence", cell: (one) => one.transactions?.[0]?.sequence ?? "–", kind: "num" },
        { title: "Operations", cell: (one) => brief((one.transactions?.[0]?.operations ?? []).map(operationText).join(", "), 160), kind: "long" },
      ],
      [...blocks].reverse(),
      empty("No block was committed here yet.", `semel ledger write ${spelled(org, vault)} --client me --sequence 1 --set key=value`),
    ),
    h("div", { class: "more" }, end < top ? h("a", { href: `#/ledger/${org}/${vault}` }, "Newest") : null, start > 1 ? h("a", { href: `#/ledger/${org}/${vault}?to=${start - 1}` }, "Older") : null),
  );
}

/** @param {any} one */
function operationText(one) {
  const [[kind, given]] = Object.entries(one);
  return `${kind} ${given.key ?? `${given.resource}#${given.relation}@${given.subject}`}`;
}

/**
 * Read the newest blocks and compute every hash again.
 * @param {string} place
 * @param {number} top
 * @param {any} tip
 * @param {HTMLElement} told
 * @param {AbortSignal} signal
 */
async function checkChain(place, top, tip, told, signal) {
  const least = Math.max(1, top - CHECKED + 1);
  /** @type {any[]} */
  const blocks = [];
  show(told, h("p", { class: "muted" }, "Checking."));
  try {
    for (let from = least; from <= top; from += 100) {
      blocks.push(...(await read(`${place}/blocks${query({ from, to: Math.min(top, from + 99) })}`, { signal })).blocks);
    }
    const broken = await brokenLink(blocks, hashHex(tip.blockHash));
    show(told, broken ? failure(new Error(`Block ${broken.height} is wrong: ${broken.why}.`)) : h("p", null, badge("verified"), ` Blocks ${count(least)} to ${count(top)} were hashed again in this browser: each has the hash of the one before, and the last one is the tip.`));
  } catch (error) {
    if (!signal.aborted) show(told, failure(error));
  }
}

/**
 * @param {HTMLElement} view
 * @param {string} org
 * @param {string} vault
 * @param {string} height
 * @param {AbortSignal} signal
 */
async function renderBlock(view, org, vault, height, signal) {
  const place = placeOf(org, vault);
  const [proof, trusted] = await Promise.all([read(`${place}/blocks/${encodeURIComponent(height)}/proof`, { signal }), trustedHash(place, Number(height), signal)]);
  const header = proof.blockHeader;
  const steps = canHash() ? await checkedProof(proof, trusted) : [];
  const isFine = steps.every(([, holds]) => holds);
  show(
    view,
    heading(`Block ${count(Number(height))}`, "", h("a", { href: stateLink(org, vault, { height }) }, "State after it"), h("a", { href: `#/ledger/${org}/${vault}` }, "All blocks")),
    h("p", null, steps.length ? badge(isFine ? "verified" : "wrong") : "Not checked: this browser computes hashes only over https or on loopback.", isFine && steps.length ? " by this browser, from the bytes of the proof" : ""),
    steps.length ? h("ul", { class: "steps" }, steps.map(([text, holds]) => h("li", null, badge(holds ? "ok" : "wrong"), " ", text))) : null,
    h("h2", null, "Header"),
    facts([
      ["Time", time(header.timestamp)],
      ["Hash", h("code", null, canHash() ? await blockHash(header) : "–")],
      ["Hash before", h("code", null, hashHex(header.previousHash))],
      ["Root of transactions", h("code", null, hashHex(header.txMerkleRoot))],
      ["State root", h("code", null, hashHex(header.stateRoot))],
      ["Term, index", `${header.term}, ${header.committedIndex}`],
    ]),
    h("h2", null, "Transaction"),
    content("Transaction", json(proof.transaction)),
    h("h2", null, "Command"),
    command(`semel ledger proof ${spelled(org, vault)} ${proof.transaction.id.id} --output proof.json`),
  );
}
