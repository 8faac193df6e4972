// A read of many pages: a line that tells how far it is, with a button that stops it, and goes on.
import { failure, h, setText, show } from "./dom.js";
import { count } from "./format.js";

/** Rows of a list that are drawn at first, and with each press of its button: a browser takes about a second for 2,000. */
const DRAWN = 500;
/** The shortest time between two drawings of a list that is being read, in milliseconds. */
const PAUSE = 1000;

/**
 * @typedef {{hasMore: boolean, told: string}} Step whether there is more to read, and a sentence of how far the read is
 */
export class LongRead {
  /**
   * @param {() => Promise<Step>} step reads one page
   * @param {AbortSignal} signal
   * @param {number} most pages that are read before it stops by itself
   * @param {() => void} draw shows what was read: at times, and whenever the read stops
   */
  constructor(step, signal, most, draw) {
    this.step = step;
    this.draw = draw;
    this.signal = signal;
    this.most = most;
    this.isRunning = false;
    this.text = h("span");
    this.button = h("button", { type: "button", class: "quiet", onclick: () => (this.isRunning ? (this.isRunning = false) : this.run()) });
    this.element = h("div", { class: "progress muted", "aria-live": "polite" }, this.text);
  }

  /** Read until the end, a stop, or `most` pages. */
  async run() {
    this.isRunning = true;
    show(this.element, this.text, this.button);
    setText(this.button, "Stop");
    let drawn = -PAUSE;
    try {
      for (let pages = 0; pages < this.most && this.isRunning && !this.signal.aborted; pages += 1) {
        const { hasMore, told } = await this.step();
        setText(this.text, told);
        if (hasMore && performance.now() - drawn > PAUSE) {
          this.draw();
          drawn = performance.now();
        }
        if (!hasMore) return void show(this.element, told ? this.text : null);
      }
      setText(this.button, "Read on");
    } catch (error) {
      if (!this.signal.aborted) show(this.element, failure(error));
    } finally {
      this.isRunning = false;
      if (!this.signal.aborted) this.draw();
    }
  }
}

/**
 * The first rows of a list that may be long, with a button that draws more of them.
 * @param {any[]} rows
 * @param {(some: any[]) => any} drawn
 */
export function firstOf(rows, drawn) {
  if (rows.length <= DRAWN) return drawn(rows);
  const place = h("div");
  let shown = 0;
  const more = () => {
    shown = Math.min(rows.length, shown + DRAWN);
    const button = h("button", { type: "button", onclick: more }, "Show more");
    show(place, drawn(rows.slice(0, shown)), shown < rows.length ? h("div", { class: "more" }, h("span", { class: "muted" }, `The first ${count(shown)} of ${count(rows.length)} are shown.`), " ", button) : null);
  };
  more();
  return place;
}
