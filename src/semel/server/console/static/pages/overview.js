// Overview: what the server does right now, from `/v1/live`, asked twice a second.
import { every, read } from "../api.js";
import { Chart, quantile } from "../chart.js";
import { h, heading, setText, show } from "../dom.js";
import { count, duration, rate } from "../format.js";

const STEP_MS = 500;
/** Steps over which rates and quantiles are taken. */
const WINDOW = 4;
const VERDICTS = ["fresh", "replay", "mismatch", "gap", "fenced", "refused"];
const ABOUT = {
  fresh: "stored for the first time",
  replay: "repeated, and answered from its receipt",
  mismatch: "a key that was used for another payload",
  gap: "a predecessor is missing",
  fenced: "of a producer that was replaced",
  refused: "not stored",
};

/**
 * @param {HTMLElement} view
 * @param {unknown} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  const live = h("span", { class: "live" }, "live");
  const first = await read("/v1/live", { signal });
  const board = new Board(Object.keys(first.writes));
  show(view, heading("Overview", "Writes of this server since its start, and what it does now.", live), board.element);
  /** @type {any[]} */
  const seen = [];
  await every(STEP_MS, signal, async () => {
    try {
      const now = await read("/v1/live", { signal });
      if (seen.length && now.started_ms !== seen[0].started_ms) seen.length = 0;
      seen.push(now);
      if (seen.length > WINDOW + 1) seen.shift();
      board.draw(now, seen[0]);
      live.className = "live";
      setText(live, "live");
    } catch {
      if (signal.aborted) return;
      live.className = "live off";
      setText(live, "no answer");
    }
  });
}

/** The cards, the charts and the table. */
class Board {
  /** @param {string[]} surfaces */
  constructor(surfaces) {
    this.surfaces = surfaces;
    this.cards = {
      writes: card("Writes a second"),
      doubles: card("Doubles prevented"),
      commit: card("Commit, median and p99"),
      queue: card("Oldest waiting write"),
    };
    this.byVerdict = new Chart("Writes a second by verdict", VERDICTS.slice(0, 3).concat("refused"), rate, { stacked: true });
    this.bySurface = new Chart("Writes a second by surface", surfaces, rate, { stacked: true });
    this.commits = new Chart("Commit time", ["median", "p99"], duration, { least: 0.001 });
    this.queue = new Chart("Age of the oldest waiting write", ["age"], duration, { least: 0.01 });
    /** @type {Record<string, HTMLElement>} */
    this.cells = {};
    this.element = h("div", null, h("div", { class: "cards" }, Object.values(this.cards).map((one) => one.element)), h("div", { class: "charts" }, this.byVerdict.element, this.bySurface.element, this.commits.element, this.queue.element), h("h2", null, "Since the start"), this.table());
  }

  table() {
    const cell = (/** @type {string} */ name) => (this.cells[name] = h("td", { class: "num", "data-cell": name }, "0"));
    const row = (/** @type {string} */ surface) => h("tr", null, h("th", { scope: "row" }, surface), VERDICTS.map((verdict) => cell(`${surface} ${verdict}`)));
    const head = h("tr", null, h("th", { scope: "col" }, "Surface"), VERDICTS.map((one) => h("th", { scope: "col", class: "num", title: ABOUT[one] }, one)));
    return h("div", { class: "scroll", role: "region", "aria-label": "Writes by surface and verdict", tabindex: 0 }, h("table", null, h("thead", null, head), h("tbody", null, this.surfaces.map(row))));
  }

  /**
   * @param {any} now
   * @param {any} before
   */
  draw(now, before) {
    const seconds = Math.max(0.001, (now.now_ms - before.now_ms) / 1000);
    const grown = (/** @type {string} */ surface, /** @type {string} */ verdict) =>
      now === before ? 0 : Math.max(0, ((now.writes[surface]?.[verdict] ?? 0) - (before.writes[surface]?.[verdict] ?? 0)) / seconds);
    const all = (/** @type {string[]} */ verdicts) => this.surfaces.reduce((sum, surface) => sum + verdicts.reduce((some, one) => some + grown(surface, one), 0), 0);
    const verdicts = [["fresh"], ["replay"], ["mismatch"], ["gap", "fenced", "refused"]].map(all);
    this.byVerdict.push(verdicts);
    this.bySurface.push(this.surfaces.map((surface) => VERDICTS.reduce((sum, one) => sum + grown(surface, one), 0)));
    const { bounds, counts } = now.commit_seconds;
    const lately = counts.map((/** @type {number} */ value, /** @type {number} */ place) => value - (now === before ? 0 : before.commit_seconds.counts[place]));
    const [median, high] = [0.5, 0.99].map((share) => quantile(bounds, lately, share));
    this.commits.push(high ? [median, high] : [null, null]);
    this.queue.push([now.queue.oldest_seconds]);
    this.tell(now, verdicts.reduce((sum, one) => sum + one, 0), high ? [median, high] : [0.5, 0.99].map((share) => quantile(bounds, counts, share)), high > 0);
  }

  /**
   * @param {any} now
   * @param {number} writes
   * @param {number[]} commit
   * @param {boolean} isLate
   */
  tell(now, writes, commit, isLate) {
    const total = Object.values(now.writes).reduce((sum, one) => sum + Object.values(one).reduce((/** @type {number} */ some, value) => some + value, 0), 0);
    this.cards.writes.tell(rate(writes), `${count(total)} judged since the start`);
    this.cards.doubles.tell(count(now.doubles_prevented), "writes not done twice");
    this.cards.commit.tell(commit[1] ? commit.map((one) => duration(one).replace(" ", "\u00a0")).join(" · ") : "–", isLate ? "of the last two seconds" : "since the start");
    this.cards.queue.tell(duration(now.queue.oldest_seconds), `${count(now.queue.writes)} writes wait for a commit`);
    for (const [surface, verdicts] of Object.entries(now.writes)) {
      for (const verdict of VERDICTS) setText(this.cells[`${surface} ${verdict}`], verdicts[verdict] === undefined ? "–" : count(verdicts[verdict]));
    }
  }
}

/** @param {string} name */
function card(name) {
  const [value, about] = [h("div", { class: "value" }, "–"), h("div", { class: "muted" })];
  const tell = (/** @type {string} */ text, /** @type {string} */ more) => {
    setText(value, text);
    setText(about, more);
  };
  return { element: h("div", { class: "card" }, h("div", { class: "muted" }, name), value, about), tell };
}
