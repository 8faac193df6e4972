// A read of many pages: a line that tells how far it is, with a button that stops it, and goes on.
import { failure, h, setText, show } from "./dom.js";

/**
 * @typedef {{hasMore: boolean, told: string}} Step whether there is more to read, and a sentence of how far the read is
 */
export class LongRead {
  /**
   * @param {() => Promise<Step>} step reads one page
   * @param {AbortSignal} signal
   * @param {number} most pages that are read before it stops by itself
   */
  constructor(step, signal, most) {
    this.step = step;
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
    try {
      for (let pages = 0; pages < this.most && this.isRunning && !this.signal.aborted; pages += 1) {
        const { hasMore, told } = await this.step();
        setText(this.text, told);
        if (!hasMore) return void show(this.element, told ? this.text : null);
      }
      setText(this.button, "Read on");
    } catch (error) {
      if (!this.signal.aborted) show(this.element, failure(error));
    } finally {
      this.isRunning = false;
    }
  }
}
