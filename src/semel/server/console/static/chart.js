// Charts of the last two minutes: one value a step, drawn as lines or as a stack of areas in a fixed frame.
import { h, setText } from "./dom.js";

export const STEPS = 240;
const WIDTH = 480;
const HEIGHT = 100;
/** The length of the dash of a step whose neighbours have no value. */
const ALONE = 4;

/**
 * A chart that is drawn again at each step.
 */
export class Chart {
  /**
   * @param {string} title
   * @param {string[]} names of the series, in the order of their colours
   * @param {(value: number) => string} shown
   * @param {{stacked?: boolean, least?: number}} [options] `least` is the lowest upper end of the axis
   */
  constructor(title, names, shown, { stacked = false, least = 1 } = {}) {
    this.names = names;
    this.shown = shown;
    this.stacked = stacked;
    this.least = least;
    /** @type {(number | null)[][]} */
    this.steps = [];
    this.top = h("span", { class: "muted" });
    this.marks = names.map((name, place) => h("path", { class: `${stacked ? "area" : "curve"} k${place}` }));
    this.values = names.map(() => h("span"));
    const grid = [0, 0.5, 1].map((part) => h("line", { x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }));
    const frame = { viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}, the last two minutes` };
    this.element = h(
      "section",
      { class: "chart", "aria-label": title },
      h("div", { class: "top" }, h("h2", null, title), this.top),
      h("svg", frame, grid, this.marks),
      h("div", { class: "legend" }, names.map((name, place) => h("span", null, h("i", { class: `k${place}` }), name, " ", this.values[place]))),
    );
  }

  /**
   * Add the values of one step and draw; null is a step without a value.
   * @param {(number | null)[]} values
   */
  push(values) {
    this.steps.push(values);
    if (this.steps.length > STEPS) this.steps.shift();
    const sums = this.stacked ? this.steps.map(sum) : this.steps.map((one) => Math.max(...one.map(Number)));
    const most = nice(Math.max(this.least, ...sums));
    setText(this.top, `0 to ${this.shown(most)}`);
    values.forEach((value, place) => setText(this.values[place], value === null ? "–" : this.shown(value)));
    const x = (/** @type {number} */ place) => WIDTH - ((this.steps.length - 1 - place) * WIDTH) / (STEPS - 1);
    const y = (/** @type {number} */ value) => HEIGHT - (value / most) * HEIGHT;
    if (this.stacked) this.drawStack(x, y);
    else this.drawLines(x, y);
  }

  /**
   * @param {(place: number) => number} x
   * @param {(value: number) => number} y
   */
  drawLines(x, y) {
    this.marks.forEach((mark, series) => {
      let drawn = "";
      let isDown = false;
      this.steps.forEach((one, place) => {
        const value = one[series];
        const isAlone = !isDown && (this.steps[place + 1]?.[series] ?? null) === null;
        if (value !== null) drawn += `${isDown ? "L" : "M"}${(x(place) - (isAlone ? ALONE : 0)).toFixed(1)},${y(value).toFixed(1)}${isAlone ? `h${ALONE}` : ""}`;
        isDown = value !== null;
      });
      mark.setAttribute("d", drawn || "M0,0");
    });
  }

  /**
   * @param {(place: number) => number} x
   * @param {(value: number) => number} y
   */
  drawStack(x, y) {
    let below = this.steps.map(() => 0);
    this.marks.forEach((mark, series) => {
      const above = below.map((value, place) => value + Number(this.steps[place][series]));
      const upper = above.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
      const lower = below.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`).reverse();
      mark.setAttribute("d", `M${[...upper, ...lower].join("L")}Z`);
      below = above;
    });
  }
}

/** @param {(number | null)[]} values */
const sum = (values) => values.reduce((/** @type {number} */ all, one) => all + Number(one), 0);

/**
 * The next round number: 1, 2 or 5 times a power of ten.
 * @param {number} value
 */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return /** @type {number} */ ([1, 2, 5, 10].map((one) => one * power).find((one) => one >= value * 0.999));
}

/**
 * The value below which a share of those in a histogram lie, between the bounds of its bucket; 0 if it is empty.
 * @param {number[]} bounds
 * @param {number[]} counts one more than bounds
 * @param {number} share
 */
export function quantile(bounds, counts, share) {
  const wanted = sum(counts) * share;
  let passed = 0;
  for (let place = 0; place < counts.length; place += 1) {
    if (counts[place] > 0 && passed + counts[place] >= wanted) {
      const low = place === 0 ? 0 : bounds[place - 1];
      const high = bounds[place] ?? low;
      return low + ((high - low) * (wanted - passed)) / counts[place];
    }
    passed += counts[place];
  }
  return 0;
}
