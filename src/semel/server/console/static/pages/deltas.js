// Deltas: gateways, the rows of their tables, and the history of each column, from the log of a gateway.
import { isAdmin, path, query, read } from "../api.js";
import { badge, empty, facts, h, heading, show, table } from "../dom.js";
import { brief, count, size, time } from "../format.js";

const MOST_ENTRIES = 5000;
const PAGE = 1000;
/** The client id under which the console pulls; it pushes nothing. */
const READER = "semel-console";

/**
 * @param {HTMLElement} view
 * @param {{parts: string[], query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  const [gateway, name, row] = route.parts;
  if (gateway) return renderGateway(view, gateway, name, row, signal);
  const go = h("input", { type: "text", "aria-label": "Gateway", placeholder: "Gateway" });
  const form = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), (location.hash = `#/deltas/${encodeURIComponent(go.value.trim())}`)) }, go, h("button", { type: "submit" }, "Open"));
  const title = heading("Deltas", "Gateways: separate data sets, synced between devices.");
  if (!isAdmin()) return show(view, title, form, empty("The list of gateways needs a token with the admin role and without scopes; a gateway that you may read can be opened by its name."));
  const { gateways, hasMore } = await read(`/v1/admin/gateways${query({ after: route.query.get("after") })}`, { signal });
  show(
    view,
    title,
    form,
    table("Gateways", [{ title: "Gateway", cell: (one) => h("a", { href: `#/deltas/${encodeURIComponent(one)}` }, one), kind: "long" }], gateways, empty("No delta was pushed yet. A replica pushes its changes:", `python -c "from semel.client import Client; db = Client().deltas('device.db', 'gw1'); db.insert('todos', 'row-1', {'title': 'Buy milk'}); db.sync()"`)),
    hasMore ? h("div", { class: "more" }, h("a", { href: `#/deltas${query({ after: gateways[gateways.length - 1] })}` }, "Next page")) : null,
  );
}

/**
 * @param {HTMLElement} view
 * @param {string} gateway
 * @param {string | undefined} name
 * @param {string | undefined} row
 * @param {AbortSignal} signal
 */
async function renderGateway(view, gateway, name, row, signal) {
  const [{ entries, isWhole }, stats] = await Promise.all([log(gateway, signal), isAdmin() ? read(path`/v1/admin/metrics/${gateway}`, { signal }) : null]);
  const warning = isWhole ? null : h("p", { class: "warning" }, `Only the first ${count(MOST_ENTRIES)} entries of the log are shown here; semel deltas export has all of them.`);
  const here = `#/deltas/${encodeURIComponent(gateway)}`;
  if (name !== undefined && row !== undefined) {
    const changes = entries.filter((one) => one.table === name && one.rowId === row);
    show(view, heading(brief(row, 200), `Row of ${name} in ${gateway}: every change, newest first.`, h("a", { href: `${here}/${encodeURIComponent(name)}` }, "All rows")), warning, history(changes));
    return;
  }
  const tables = [...new Set(entries.map((one) => one.table))].sort();
  const chosen = name ?? tables[0];
  show(
    view,
    heading(gateway, "Rows as the log has them now.", h("a", { href: "#/deltas" }, "All gateways")),
    stats ? facts([["Deltas", count(stats.deltaCount)], ["Entries of the log", count(stats.logSize)], ["Rows", count(stats.indexSize)], ["Size", size(stats.byteSize)]]) : null,
    warning,
    tables.length ? h("nav", { class: "tabs", "aria-label": "Tables" }, tables.map((one) => h("a", { href: `${here}/${encodeURIComponent(one)}`, "aria-current": one === chosen ? "page" : null }, one))) : null,
    tables.length ? rows(entries.filter((one) => one.table === chosen), `${here}/${encodeURIComponent(chosen)}`) : empty("This gateway has no rows that you may see."),
  );
}

/**
 * The entries of a gateway, oldest first, up to a limit.
 * @param {string} gateway
 * @param {AbortSignal} signal
 */
async function log(gateway, signal) {
  /** @type {any[]} */
  const entries = [];
  let since = "0";
  for (;;) {
    const page = await read(path`/v1/sync/${gateway}/pull` + query({ since, clientId: READER, limit: PAGE }), { signal });
    entries.push(...page.deltas);
    if (!page.hasMore) return { entries, isWhole: true };
    if (entries.length >= MOST_ENTRIES) return { entries, isWhole: false };
    since = page.serverHlc;
  }
}

/**
 * @param {any[]} entries of one table
 * @param {string} here
 */
function rows(entries, here) {
  /** @type {Map<string, {id: string, columns: Map<string, any>, isGone: boolean, changes: number, last: any}>} */
  const found = new Map();
  for (const one of entries) {
    const row = found.get(one.rowId) ?? { id: one.rowId, columns: new Map(), isGone: false, changes: 0, last: one };
    for (const { column, value } of one.columns ?? []) row.columns.set(column, value);
    row.isGone = one.op === "DELETE";
    row.changes += 1;
    row.last = one;
    found.set(one.rowId, row);
  }
  return table(
    "Rows",
    [
      { title: "Row", cell: (one) => h("a", { href: `${here}/${encodeURIComponent(one.id)}` }, brief(one.id, 120)), kind: "name" },
      { title: "Columns", cell: (one) => (one.isGone ? badge("deleted") : [...one.columns].map(([name, value]) => h("span", { class: "pair" }, h("span", { class: "muted" }, name), " ", brief(value, 160)))), kind: "long" },
      { title: "Changes", cell: (one) => count(one.changes), kind: "num" },
      { title: "Last change", cell: (one) => time(wall(one.last.hlc)), kind: "time" },
      { title: "By", cell: (one) => brief(one.last.clientId, 80), kind: "name" },
    ],
    [...found.values()],
  );
}

/** @param {any[]} changes */
function history(changes) {
  return table(
    "Changes",
    [
      { title: "Time", cell: (one) => time(wall(one.hlc)), kind: "time" },
      { title: "Change", cell: (one) => badge(one.op.toLowerCase()) },
      { title: "Columns", cell: (one) => (one.columns ?? []).map((/** @type {any} */ each) => h("span", { class: "pair" }, h("span", { class: "muted" }, each.column), " ", brief(each.value, 400))), kind: "long" },
      { title: "By", cell: (one) => brief(one.clientId, 80), kind: "name" },
      { title: "Delta", cell: (one) => h("a", { href: `#/find/${encodeURIComponent(`${one.deltaId}@${one.hlc}`)}`, class: "mono" }, `${one.deltaId.slice(0, 12)}…`), kind: "id" },
    ],
    [...changes].reverse(),
    empty("The log has no change of this row that you may see."),
  );
}

/**
 * The milliseconds of a hybrid clock.
 * @param {string} hlc
 */
const wall = (hlc) => Number(BigInt(hlc) >> 16n);
