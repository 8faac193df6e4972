// Values as texts for people: numbers, times, sizes, and JSON.
import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** @param {number} number */
export const count = (number) => whole.format(number);

/** @param {number} number */
export const rate = (number) => (number >= 100 || Number.isInteger(number) ? count(number) : number.toFixed(1));

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (bytes >= 1024 && place < units.length - 1) {
    bytes /= 1024;
    place += 1;
  }
  return `${place === 0 ? bytes : bytes.toFixed(1)} ${units[place]}`;
}

/**
 * A duration with its unit.
 * @param {number} seconds
 */
export function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** @param {number} number */
const two = (number) => String(number).padStart(2, "0");

/**
 * An instant in the local time, with the exact one in a tooltip; a dash for none.
 * @param {string | number | null | undefined} value milliseconds since 1970, or an ISO time
 */
export function time(value) {
  if (value === null || value === undefined || value === "") return h("span", { class: "muted" }, "–");
  const at = new Date(value);
  if (Number.isNaN(at.getTime())) return String(value);
  const iso = at.toISOString();
  const exact = typeof value === "string" ? value : iso;
  return h("time", { datetime: iso, title: exact }, localTime(at));
}

/**
 * As `time`, to the second: for lists with many columns.
 * @param {string | null | undefined} value
 */
export function second(value) {
  const made = time(value);
  if (made.dateTime) made.textContent = made.textContent.slice(0, 19);
  return made;
}

/**
 * An offset in full, that a narrow page breaks between its halves.
 * @param {string | null} text
 */
export function fullOffset(text) {
  const [epoch, position] = (text ?? "").split("_");
  return h("code", null, epoch, position === undefined ? null : ["_", h("wbr"), position]);
}

/** @param {Date} at */
export function localTime(at) {
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const tick = String(at.getMilliseconds()).padStart(3, "0");
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${tick}`;
}

/**
 * How long ago an instant was.
 * @param {string | number} value
 */
export function ago(value) {
  const seconds = (Date.now() - new Date(value).getTime()) / 1000;
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(Math.floor(seconds))} ago`;
}

export const MAX_SHOWN = 20_000;

/**
 * A value as readable JSON, cut at `MAX_SHOWN` characters.
 * @param {any} value
 */
export function json(value) {
  return cut(JSON.stringify(value, null, 2) ?? "");
}

/** @param {string} text */
export function cut(text) {
  if (text.length <= MAX_SHOWN) return text;
  return `${text.slice(0, MAX_SHOWN)}\n… ${count(text.length - MAX_SHOWN)} more characters`;
}

/**
 * A value in one line, cut at `most` characters.
 * @param {any} value
 * @param {number} [most]
 */
export function brief(value, most = 160) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/**
 * A word of a command line, quoted where the shell would read it as something else.
 * @param {string} text
 */
export const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/**
 * An offset without its leading zeros: the position, and the epoch where it is not the first.
 * @param {string} text
 */
export function offset(text) {
  const [epoch, position] = text.split("_").map((one) => one.replace(/^0+(?=.)/, ""));
  return h("span", { title: text }, epoch === "0" ? position : `${epoch}_${position}`);
}

/**
 * Content as it is stored, for reading and copying.
 * @param {string} label
 * @param {string} text
 */
export function content(label, text) {
  return h("pre", { class: "content", tabindex: 0, role: "region", "aria-label": label }, text);
}

/**
 * Whether a text can be in a URL: halves of surrogate pairs, which ids of rows may have, cannot.
 * @param {string} text
 */
export const fitsUrl = (text) => !/\p{Surrogate}/u.test(text);

/**
 * The milliseconds of a hybrid clock.
 * @param {string} hlc
 */
export const wall = (hlc) => Number(BigInt(hlc) >> 16n);
