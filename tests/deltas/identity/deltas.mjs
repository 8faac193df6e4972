// Random deltas, each with the name that fast-json-stable-stringify and SHA-256 give it.
//
//   node deltas.mjs --count 20000 --seed 7 --latest 116000000000000000
//
// A line of JSON for each: {"deltaId", "canonical", "sent"}, where `sent` is the text that a client puts on the wire. No
// stamp is above --latest, except that every hundredth, from the 7000th delta on, may be any 64 bits.

import { createHash } from "node:crypto";
import { parseArgs } from "node:util";

import stringify from "fast-json-stable-stringify";

const { values: asked } = parseArgs({
  options: { count: { type: "string" }, seed: { type: "string" }, latest: { type: "string" } },
});

const ANY_STAMP_FROM = 7000;

// Mulberry32: the same numbers for the same seed, everywhere.
let state = Number(asked.seed) >>> 0;
const random = () => {
  state = (state + 0x6d2b79f5) >>> 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
};
const below = (limit) => Math.floor(random() * limit);
const one = (choices) => choices[below(choices.length)];
const bits64 = () => (BigInt(below(2 ** 32)) << 32n) | BigInt(below(2 ** 32));
const times = (most, make) => Array.from({ length: below(most + 1) }, make);

const anyDouble = () => {
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setBigUint64(0, bits64());
  return bytes.getFloat64(0);
};

const numbers = [
  () => below(200) - 100,
  anyDouble, // NaN and the infinities are among them
  () => random(),
  () => (random() - 0.5) * 10 ** (below(50) - 25),
  () => 10 ** (below(660) - 330),
  () => 2 ** 53 + below(9) - 4,
  () => Number(bits64()),
  () => -Number(bits64() >> BigInt(below(64))),
  () => one([0, -0, NaN, Infinity, -Infinity, 5e-324, -5e-324, 2.2250738585072014e-308, Number.MAX_VALUE]),
  () => one([1e21, 1e-7, 0.000001, 0.1, 123456789012345680000, 1e20, 999999999999999900000, 1e21 - 1e5, 4.35, 5e-7]),
];

const characters = [
  () => String.fromCharCode(0x20 + below(0x5f)),
  () => String.fromCharCode(below(0x20)),
  () => one(['"', "\\", "/", "\b", "\t", "\n", "\f", "\r", "\x7f", "\u0080", "\u2028", "\u2029", "<", "&", "'"]),
  () => String.fromCharCode(below(0x10000)), // halves of pairs are among them
  () => String.fromCharCode(0xd800 + below(0x800)),
  () => String.fromCodePoint(0x10000 + below(0x100000)),
  () => one(["é", "e\u0301", "日", "🎉", "\ue000", "\uff5e", "\ufeff", "\u0000"]),
];
const text = (most) => times(most, () => one(characters)()).join("");

const leaves = [
  () => null,
  () => true,
  () => false,
  () => one(numbers)(),
  () => one(numbers)(),
  () => text(12),
  () => text(12),
  () => one(["", "hlc", "0x1F", "115998720000000000"]),
  () => new Date(below(4e12)),
  () => undefined,
  () => () => "a function has no form",
];
const names = () => one([text(4), text(4), String(below(20)), one(["hlc", "lastHlc", "__proto__", "constructor", "", "a", "Z", "value"])]);

const nested = (depth) => {
  const kind = depth === 0 ? 0 : below(5);
  if (kind === 1) return times(5, () => nested(depth - 1));
  if (kind === 2) {
    const made = {};
    for (const name of times(6, names)) {
      // A plain assignment to `__proto__` would set no member.
      Object.defineProperty(made, name, { value: nested(depth - 1), enumerable: true, configurable: true, writable: true });
    }
    return made;
  }
  return one(leaves)();
};

const LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
const identifier = (number) => `${one(LETTERS)}${times(8, () => one(LETTERS + "0123456789")).join("")}_${number}`;

const column = (number) => {
  const made = { column: identifier(number), value: nested(4) };
  if (below(12) === 0) made[one(["type", "meta", "zz", "aa", "10", "é"])] = nested(2);
  if (below(25) === 0) delete made.value;
  return below(3) === 0 ? Object.fromEntries(Object.entries(made).reverse()) : made;
};

const stamp = (number) => {
  if (number >= ANY_STAMP_FROM && number % 100 === 0) return bits64();
  const latest = BigInt(asked.latest);
  return one([() => bits64() % latest, () => latest - BigInt(below(1e9)), () => BigInt(below(3))])();
};

const nonEmpty = (most) => one([() => text(most), () => `row-${below(1e6)}`])() || "x";

for (let number = 0; number < Number(asked.count); number += 1) {
  const hashed = {
    clientId: nonEmpty(6),
    hlc: stamp(number).toString(),
    table: identifier(below(3)).slice(0, 64),
    rowId: nonEmpty(20),
    columns: Array.from({ length: below(5) }, (_, place) => column(place)),
  };
  const canonical = stringify(hashed);
  const deltaId = createHash("sha256").update(new TextEncoder().encode(canonical)).digest("hex");
  const sent = JSON.stringify({ op: one(["INSERT", "UPDATE", "DELETE"]), ...hashed, deltaId, retryCount: below(9) });
  process.stdout.write(`${JSON.stringify({ deltaId, canonical, sent })}\n`);
}
