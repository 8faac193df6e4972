// One row of a gateway: its columns with who set each; and its history, or that of one column, with who lost to whom.
import { path, query, read } from "./api.js";
import { badge, facts, h, heading, show, table } from "./dom.js";
import { brief, content, count, json, localTime, time, wall } from "./format.js";
import { LongRead, firstOf } from "./long_read.js";

const PAGE = 200;
/** Pages of the log, of 5,000 positions each, that are read before the page asks whether to read on. */
const MOST_PAGES = 100;

/** @typedef {{gateway: string, table: string, row: string, column: string | undefined}} Place */
/** @typedef {{entries: any[], next: () => Promise<boolean>}} Log */

/**
 * @param {HTMLElement} view
 * @param {Place} place
 * @param {Log | null} log what a reader may pull; null for one who may use the calls of administrators
 * @param {AbortSignal} signal
 */
export async function renderRow(view, place, log, signal) {
  const { gateway, row, column } = place;
  const asked = { table: place.table, row };
  const here = `#/deltas/${encodeURIComponent(gateway)}/${encodeURIComponent(place.table)}`;
  const own = `${here}/${encodeURIComponent(row)}`;
  const [{ rows }, stats] = log ? [{ rows: [] }, null] : await Promise.all([read(path`/v1/admin/rows/${gateway}` + query(asked), { signal }), read(path`/v1/admin/metrics/${gateway}`, { signal })]);
  const list = h("div");
  const reading = log ? pulled(log, place, own, list, signal) : listed(place, stats, own, rows[0], list, signal);
  show(
    view,
    heading(brief(column ?? row, 200), column === undefined ? `Row of ${place.table} in ${gateway}.` : [`Column of row `, h("a", { href: own }, brief(row, 120)), ` of ${place.table} in ${gateway}.`], h("a", { href: column === undefined ? here : own }, column === undefined ? "All rows" : "The row")),
    log ? h("p", { class: "warning" }, "The log has for you what its rules let you see, and no write that lost. An administrator sees all of them.") : now(rows[0], column, own),
    h("h2", null, "History"),
    h("p", { class: "muted" }, "Newest first, in the order of the commits. The write with the greatest clock wins; equal clocks are decided by the client, then by the delta."),
    reading.element,
    list,
  );
  await reading.run();
}

/**
 * What the row is now, or one column of it.
 * @param {any} row
 * @param {string | undefined} column
 * @param {string} own
 */
function now(row, column, own) {
  if (!row) return h("p", { class: "warning" }, "There is no such row.");
  if (row.isDeleted) return h("p", null, badge("deleted"), " by ", h("strong", null, brief(row.clientId, 120)), " at ", time(wall(row.hlc)));
  if (column !== undefined) {
    const cell = row.columns.find((/** @type {any} */ one) => one.column === column);
    if (!cell) return h("p", { class: "warning" }, "The row has no such column now.");
    return [h("h2", null, "Value now"), content("Value now", json(cell.value)), facts([["Set at", time(wall(cell.hlc))], ["By", brief(cell.clientId, 120)], ["Clock (HLC)", h("code", null, cell.hlc)], ["Delta", deltaLink(cell)]])];
  }
  return table(
    "Columns",
    [
      { title: "Column", cell: (one) => h("a", { href: `${own}/${encodeURIComponent(one.column)}`, title: "The history of this column" }, one.column), kind: "name" },
      { title: "Value", cell: (one) => brief(one.value, 400), kind: "long" },
      { title: "Set at", cell: (one) => time(wall(one.hlc)), kind: "time" },
      { title: "By", cell: (one) => brief(one.clientId, 80), kind: "name" },
      { title: "Delta", cell: deltaLink, kind: "id" },
    ],
    row.columns,
    h("p", { class: "muted" }, "The row has no columns."),
  );
}

/** @param {any} one */
const deltaLink = (one) => h("a", { href: `#/find/${encodeURIComponent(`${one.deltaId}@${one.hlc}`)}`, class: "mono", title: one.deltaId }, `${one.deltaId.slice(0, 12)}…`);

/**
 * The deltas of the row from the call of administrators.
 * @param {Place} place
 * @param {any} stats
 * @param {string} own
 * @param {any} row
 * @param {HTMLElement} list
 * @param {AbortSignal} signal
 */
function listed(place, stats, own, row, list, signal) {
  /** @type {any[]} */
  const found = [];
  let [after, isWhole] = ["0", false];
  const step = async () => {
    const page = await read(path`/v1/admin/entries/${place.gateway}` + query({ table: place.table, row: place.row, column: place.column, after, limit: PAGE }), { signal });
    found.push(...page.entries);
    after = page.position;
    isWhole = !page.hasMore;
    const cut = page.cut === "0" ? "" : ` Retention has removed the log up to ${localCut(page.cut)}: writes before are missing, and whether one after lost to one of them is not known.`;
    const part = page.hasMore ? `The log is read up to ${localCut(page.position)}, of ${count(stats.logSize)} entries in all: later writes are missing here.` : `The log was read to its end, ${count(stats.logSize)} entries.`;
    return { hasMore: page.hasMore, told: part + cut };
  };
  const draw = () => show(list, place.column === undefined ? changes(found, own) : fates(found, place.column, row, isWhole));
  return new LongRead(step, signal, MOST_PAGES, draw);
}

/** @param {string} position */
const localCut = (position) => (position === "0" ? "its beginning" : localTime(new Date(wall(position))));

/**
 * The entries of the row that a reader may pull.
 * @param {Log} log
 * @param {Place} place
 * @param {string} own
 * @param {HTMLElement} list
 * @param {AbortSignal} signal
 */
function pulled(log, place, own, list, signal) {
  const isMine = (/** @type {any} */ one) => one.table === place.table && one.rowId === place.row && (place.column === undefined || one.op === "DELETE" || one.columns.some((/** @type {any} */ each) => each.column === place.column));
  const step = async () => {
    const hasMore = await log.next();
    return { hasMore, told: `${count(log.entries.length)} entries of the log were read${hasMore ? ": later writes are missing here" : ", to its end"}.` };
  };
  return new LongRead(step, signal, MOST_PAGES, () => show(list, changes(log.entries.filter(isMine), own)));
}

/**
 * @param {any[]} entries oldest first
 * @param {string} own
 */
function changes(entries, own) {
  const columns = (/** @type {any} */ one) => (one.columns ?? []).map((/** @type {any} */ each) => h("span", { class: "pair" }, h("a", { href: `${own}/${encodeURIComponent(each.column)}` }, each.column), " ", brief(each.value, 400)));
  const drawn = (/** @type {any[]} */ some) => table(
    "Changes",
    [
      { title: "Time", cell: (one) => time(wall(one.hlc)), kind: "time" },
      { title: "Change", cell: (one) => [badge(one.op.toLowerCase()), one.delivered === null ? h("span", { class: "muted" }, " lost") : null] },
      { title: "Columns", cell: columns, kind: "long" },
      { title: "By", cell: (one) => brief(one.clientId, 80), kind: "name" },
      { title: "Delta", cell: deltaLink, kind: "id" },
    ],
    some,
    h("p", { class: "muted" }, "No change of it was found yet."),
  );
  return firstOf([...entries].reverse(), drawn);
}

/**
 * Whether one write is above another: by its clock, its client in UTF-16, and its id.
 * @param {any} one
 * @param {any} other
 */
function isAbove(one, other) {
  if (one.hlc !== other.hlc) return BigInt(one.hlc) > BigInt(other.hlc);
  return one.clientId === other.clientId ? one.deltaId > other.deltaId : one.clientId > other.clientId;
}

/**
 * The writes of one column, each with what became of it.
 * @param {any[]} entries oldest first
 * @param {string} column
 * @param {any} row
 * @param {boolean} isWhole
 */
function fates(entries, column, row, isWhole) {
  /** @type {any} */
  let top = null;
  const known = entries.map((entry) => ({ entry, lostTo: null, endedBy: null }));
  for (const one of known) {
    if (top && !isAbove(one.entry, top.entry)) {
      one.lostTo = top.entry;
      continue;
    }
    if (top) top.endedBy = one.entry;
    top = one;
  }
  const by = (/** @type {any} */ other) => [deltaLink(other), ` of ${brief(other.clientId, 60)}`];
  const fate = (/** @type {any} */ { entry, lostTo, endedBy }) => {
    if (lostTo) return [badge("lost"), " to ", by(lostTo), `, whose clock is ${lostTo.hlc === entry.hlc ? "the same" : `${count(wall(lostTo.hlc) - wall(entry.hlc))} ms later`}`];
    if (endedBy) return [badge(endedBy.op === "DELETE" ? "removed" : "replaced"), " by ", by(endedBy)];
    if (entry.op === "DELETE") return badge("deleted");
    return isWhole ? badge("current") : h("span", { class: "muted" }, "won so far");
  };
  const value = (/** @type {any} */ entry) => (entry.op === "DELETE" ? h("span", { class: "muted" }, "the row was deleted") : brief(entry.columns.find((/** @type {any} */ each) => each.column === column)?.value ?? null, 400));
  const cell = row?.columns.find((/** @type {any} */ one) => one.column === column);
  const isMissing = isWhole && cell && cell.deltaId !== top?.entry.deltaId;
  return [
    isMissing ? h("p", { class: "warning" }, "The value of now was set by a delta that came while this page was read, or that retention has removed.") : null,
    firstOf(known.reverse(), (some) => table(
      "Writes of the column",
      [
        { title: "Time", cell: ({ entry }) => time(wall(entry.hlc)), kind: "time" },
        { title: "Value", cell: ({ entry }) => value(entry), kind: "long" },
        { title: "By", cell: ({ entry }) => brief(entry.clientId, 80), kind: "name" },
        { title: "What became of it", cell: fate, kind: "long" },
        { title: "Clock (HLC)", cell: ({ entry }) => h("code", null, entry.hlc), kind: "id" },
        { title: "Delta", cell: ({ entry }) => deltaLink(entry), kind: "id" },
      ],
      some,
      h("p", { class: "muted" }, "No write of it was found yet."),
    )),
  ];
}
