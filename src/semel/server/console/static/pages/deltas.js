// Deltas: gateways, and the rows of their tables. A row, and the history of a column, are shown by delta_row.js.
import { caller, isAdmin, path, query, read } from "../api.js";
import { renderRow } from "../delta_row.js";
import { badge, empty, facts, h, heading, show, table } from "../dom.js";
import { brief, count, fitsUrl, size, time, wall } from "../format.js";
import { LongRead, firstOf } from "../long_read.js";

const PAGE = 100;
const PULLED = 1000;
/** Pages of the log that are read before the page asks whether to read on. */
const MOST_PAGES = 20;
/** The client id under which the console pulls; it pushes nothing. */
const READER = "semel-console";

/**
 * @param {HTMLElement} view
 * @param {{parts: string[], query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  const [gateway, name, row, column] = route.parts;
  if (gateway && row !== undefined) return renderRow(view, { gateway, table: name, row, column }, mayReadAll() ? null : logOf(gateway, signal), signal);
  if (gateway) return mayReadAll() ? renderTable(view, gateway, name, route.query.get("after"), signal) : renderLog(view, gateway, name, signal);
  const go = h("input", { type: "text", "aria-label": "Gateway", placeholder: "Gateway" });
  const form = h("form", { class: "filters", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), (location.hash = `#/deltas/${encodeURIComponent(go.value.trim())}`)) }, go, h("button", { type: "submit" }, "Open"));
  const title = heading("Deltas", "Gateways: separate data sets, synced between devices.");
  if (!mayReadAll()) return show(view, title, form, empty("The list of gateways needs a token with the admin role; a gateway that you may read can be opened by its name."));
  const { gateways, hasMore } = await read(`/v1/admin/gateways${query({ after: route.query.get("after") })}`, { signal });
  show(
    view,
    title,
    form,
    table("Gateways", [{ title: "Gateway", cell: (one) => h("a", { href: `#/deltas/${encodeURIComponent(one)}` }, one), kind: "long" }], gateways, empty("No delta was pushed yet. A replica pushes its changes:", `python -c "from semel.client import Client; db = Client().deltas('device.db', 'gw1'); db.insert('todos', 'row-1', {'title': 'Buy milk'}); db.sync()"`)),
    hasMore ? h("div", { class: "more" }, h("a", { href: `#/deltas${query({ after: gateways[gateways.length - 1] })}` }, "Next page")) : null,
  );
}

/** Whether the calls of administrators may be made; their scopes are judged by the server. */
const mayReadAll = () => isAdmin() || Boolean(caller?.roles.includes("admin"));

/** @param {string} gateway */
const hereOf = (gateway) => `#/deltas/${encodeURIComponent(gateway)}`;

/**
 * @param {string} gateway
 * @param {string[]} names
 * @param {string | undefined} chosen
 */
function tabs(gateway, names, chosen) {
  return h("nav", { class: "tabs", "aria-label": "Tables" }, names.map((one) => h("a", { href: `${hereOf(gateway)}/${encodeURIComponent(one)}`, "aria-current": one === chosen ? "page" : null }, one)));
}

/**
 * The merged rows of a table, as the server has them: exact, however long the log is.
 * @param {HTMLElement} view
 * @param {string} gateway
 * @param {string | undefined} name
 * @param {string | null} after
 * @param {AbortSignal} signal
 */
async function renderTable(view, gateway, name, after, signal) {
  const [{ tables, hasMore }, stats] = await Promise.all([read(path`/v1/admin/tables/${gateway}`, { signal }), read(path`/v1/admin/metrics/${gateway}`, { signal })]);
  const chosen = name ?? tables[0];
  const here = `${hereOf(gateway)}/${encodeURIComponent(chosen)}`;
  const { rows, next } = chosen === undefined ? { rows: [], next: null } : await read(path`/v1/admin/rows/${gateway}` + query({ table: chosen, after, limit: PAGE }), { signal });
  show(
    view,
    heading(gateway, "Rows as they are merged now, in the order of their creation.", h("a", { href: "#/deltas" }, "All gateways")),
    facts([["Deltas pushed", count(stats.deltaCount)], ["Entries of the log", count(stats.logSize)], ["Rows", count(stats.indexSize)], ["Size", size(stats.byteSize)]]),
    tables.length ? tabs(gateway, tables, chosen) : null,
    hasMore ? h("p", { class: "warning" }, `There are more tables than these ${tables.length}; open one by its name in the URL.`) : null,
    tables.length ? drawnRows(rows, here) : empty("This gateway has no rows."),
    h("div", { class: "more" }, after ? h("a", { href: here }, "First page") : null, next ? h("a", { href: `${here}${query({ after: next })}` }, "Next page") : null),
  );
}

/**
 * The rows that the log tells a reader, page by page.
 * @param {HTMLElement} view
 * @param {string} gateway
 * @param {string | undefined} name
 * @param {AbortSignal} signal
 */
async function renderLog(view, gateway, name, signal) {
  const [log, list] = [logOf(gateway, signal), h("div")];
  const draw = () => {
    const names = [...new Set(log.entries.map((one) => one.table))].sort();
    const chosen = name ?? names[0];
    const rows = folded(log.entries.filter((one) => one.table === chosen));
    show(list, names.length ? [tabs(gateway, names, chosen), drawnRows(rows, `${hereOf(gateway)}/${encodeURIComponent(chosen)}`)] : empty("This gateway has no rows that you may see."));
  };
  const reading = new LongRead(
    async () => {
      const hasMore = await log.next();
      return { hasMore, told: hasMore ? `${count(log.entries.length)} entries of the log were read: rows are as they were then.` : `All ${count(log.entries.length)} entries that you may see were read.` };
    },
    signal,
    MOST_PAGES,
    draw,
  );
  show(view, heading(gateway, "Rows as the log has them now.", h("a", { href: "#/deltas" }, "All gateways")), reading.element, list);
  await reading.run();
}

/**
 * The log as a reader may pull it: entries, oldest first; `next` reads one page, and tells whether there is more.
 * @param {string} gateway
 * @param {AbortSignal} signal
 */
function logOf(gateway, signal) {
  /** @type {any[]} */
  const entries = [];
  let since = "0";
  const next = async () => {
    const page = await read(path`/v1/sync/${gateway}/pull` + query({ since, clientId: READER, limit: PULLED }), { signal });
    entries.push(...page.deltas);
    since = page.serverHlc;
    return page.hasMore;
  };
  return { entries, next };
}

/** @param {any[]} entries of one table */
function folded(entries) {
  /** @type {Map<string, any>} */
  const found = new Map();
  for (const one of entries) {
    const row = found.get(one.rowId) ?? { rowId: one.rowId, cells: new Map() };
    if (one.op === "DELETE") row.cells.clear();
    for (const { column, value } of one.columns ?? []) row.cells.set(column, { column, value });
    found.set(one.rowId, { ...row, isDeleted: one.op === "DELETE", hlc: one.hlc, clientId: one.clientId });
  }
  return [...found.values()].map((row) => ({ ...row, columns: [...row.cells.values()] }));
}

/**
 * @param {any[]} rows
 * @param {string} here
 */
function drawnRows(rows, here) {
  const cells = (/** @type {any} */ one) => one.columns.map((/** @type {any} */ each) => h("span", { class: "pair" }, h("span", { class: "muted" }, each.column), " ", brief(each.value, 160)));
  return firstOf(rows, (some) => table(
    "Rows",
    [
      { title: "Row", cell: (one) => (fitsUrl(one.rowId) ? h("a", { href: `${here}/${encodeURIComponent(one.rowId)}` }, brief(one.rowId, 120)) : brief(one.rowId, 120)), kind: "name" },
      { title: "Columns", cell: (one) => (one.isDeleted ? badge("deleted") : cells(one)), kind: "long" },
      { title: "Last change", cell: (one) => time(wall(one.hlc)), kind: "time" },
      { title: "By", cell: (one) => brief(one.clientId, 80), kind: "name" },
    ],
    some,
    h("p", { class: "muted" }, "There is no row."),
  ));
}
