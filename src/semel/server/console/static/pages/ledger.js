// Ledger: organizations, their places, and the blocks of one place, with the commands that prove them. The state of a
// place is shown by ledger_state.js.
import { isAdmin, path, query, read } from "../api.js";
import { badge, empty, facts, h, heading, show, table } from "../dom.js";
import { brief, content, count, json, time } from "../format.js";
import { chainHash, hashHex, placeOf, proofCommands, spelled } from "../ledger_place.js";
import { renderState, stateLink } from "../ledger_state.js";

const PAGE = 50;

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
  show(
    view,
    heading(vault === "0" ? `Organization ${org}, its own place` : `Vault ${vault}`, "Blocks, newest first.", h("a", { href: `#/ledger/${org}` }, `Organization ${org}`), h("a", { href: stateLink(org, vault, {}) }, "State")),
    facts([["Height", count(top)], ["Hash of the tip", h("code", null, hashHex(tip.blockHash))], ["State root", h("code", null, hashHex(tip.stateRoot))]]),
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
 * @param {HTMLElement} view
 * @param {string} org
 * @param {string} vault
 * @param {string} height
 * @param {AbortSignal} signal
 */
async function renderBlock(view, org, vault, height, signal) {
  const place = placeOf(org, vault);
  const [{ block }, hash] = await Promise.all([read(`${place}/blocks/${encodeURIComponent(height)}`, { signal }), chainHash(place, Number(height), signal)]);
  const { header, transactions } = block;
  show(
    view,
    heading(`Block ${count(Number(height))}`, "", h("a", { href: stateLink(org, vault, { height }) }, "State after it"), h("a", { href: `#/ledger/${org}/${vault}` }, "All blocks")),
    h("h2", null, "Header"),
    facts([
      ["Time", time(header.timestamp)],
      ["Hash", h("code", null, hash)],
      ["Hash before", h("code", null, hashHex(header.previousHash))],
      ["Root of transactions", h("code", null, hashHex(header.txMerkleRoot))],
      ["State root", h("code", null, hashHex(header.stateRoot))],
      ["Term, index", `${header.term}, ${header.committedIndex}`],
    ]),
    h("h2", null, "Transaction"),
    content("Transaction", json(transactions[0])),
    proofCommands(`semel ledger proof ${spelled(org, vault)} ${transactions[0].id.id} --output proof.json`, spelled(org, vault), header.height, hash),
  );
}
