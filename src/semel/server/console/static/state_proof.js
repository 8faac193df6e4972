// The proof of a key in the state of a block, present or absent, checked with WebCrypto as the reference says, "Ledger
// proofs". Each step that fails is false; what cannot be read is a step that fails.
import { blockHash, fromBase64, joined, sha256, sized, toHex, wide } from "./ledger_hashes.js";

const BUCKETS = 256;
const ZERO = "00".repeat(32);
const EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const MASK = (1n << 64n) - 1n;
const FACTOR = 0x6eed0e9da4d94a4fn;

/** @param {bigint} word */
function diffused(word) {
  let mixed = (word * FACTOR) & MASK;
  mixed ^= (mixed >> 32n) >> (mixed >> 60n);
  return (mixed * FACTOR) & MASK;
}

/**
 * SeaHash of 64 bits, with the seeds of the reference.
 * @param {Uint8Array} bytes
 */
export function seahash(bytes) {
  let lanes = [0x16f11fe89b0d677cn, 0xb480a793d8e6c86cn, 0x6fe2e5aaf078ebc9n, 0x14f994a4c5259381n];
  for (let start = 0; start < bytes.length; start += 8) {
    let word = 0n;
    bytes.slice(start, start + 8).forEach((one, place) => (word |= BigInt(one) << BigInt(8 * place)));
    lanes = [lanes[1], lanes[2], lanes[3], diffused(lanes[0] ^ word)];
  }
  return diffused(lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ BigInt(bytes.length));
}

/** @param {Uint8Array} key */
const bucketOf = (key) => Number(seahash(key) % BigInt(BUCKETS));

/** @param {any} text a number of 64 bits, in decimal */
function number(text) {
  if (!/^(0|[1-9]\d{0,19})$/.test(String(text)) || BigInt(text) > MASK) throw new Error(`${text} is no number of the ledger`);
  return BigInt(text);
}

/** @param {any} hash */
function hash32(hash) {
  const bytes = fromBase64(hash.value);
  if (bytes.length !== 32) throw new Error("a hash has 32 bytes");
  return bytes;
}

/** @param {any} entry */
async function leafOf(entry) {
  const [expires, version] = [number(entry.expiresAt), number(entry.version)];
  return toHex(await sha256(Uint8Array.of(0), sized(fromBase64(entry.key)), sized(fromBase64(entry.value)), wide(String(expires)), wide(String(version))));
}

/**
 * Whether the way of a key goes right at a depth.
 * @param {Uint8Array} way
 * @param {number} depth
 */
const goesRight = (way, depth) => ((way[depth >> 3] >> (7 - (depth & 7))) & 1) === 1;

/**
 * The root of the bucket, from the leaf and its siblings; empty if a sibling is on the wrong side.
 * @param {Uint8Array} way
 * @param {any} merkle
 */
async function rootFrom(way, merkle) {
  let root = hash32(merkle.leafHash);
  const siblings = merkle.siblings ?? [];
  if (siblings.length > 256) return "";
  for (const [place, one] of siblings.entries()) {
    const isRight = goesRight(way, siblings.length - 1 - place);
    if (one.direction !== (isRight ? "DIRECTION_LEFT" : "DIRECTION_RIGHT")) return "";
    const other = hash32(one.hash);
    root = isRight ? await sha256(Uint8Array.of(1), other, root) : await sha256(Uint8Array.of(1), root, other);
  }
  return toHex(root);
}

/**
 * Whether the lower end of the way is what it must be: the entry of the key, nothing, or another entry in its place.
 * @param {any} proof
 * @param {Uint8Array} key
 * @param {Uint8Array} way
 */
async function endHolds(proof, key, way) {
  const { stateProof: state, merkleProof: merkle, blockHeader: header } = proof;
  const [version, height, leaf] = [number(state.version), number(header.height), toHex(hash32(merkle.leafHash))];
  const others = state.bucketEntries ?? [];
  if (version > 0n) return others.length === 0 && version <= height && (await leafOf(state)) === leaf;
  if (fromBase64(state.value).length || number(state.expiresAt) !== 0n || others.length > 1) return false;
  if (!others.length) return leaf === ZERO;
  const other = fromBase64(others[0].key);
  const otherWay = await sha256(other);
  const isOther = toHex(other) !== toHex(key) && bucketOf(other) === bucketOf(key);
  const isInPlace = (merkle.siblings ?? []).every((/** @type {any} */ _, /** @type {number} */ depth) => goesRight(way, depth) === goesRight(otherWay, depth));
  const age = number(others[0].version);
  return isOther && isInPlace && age > 0n && age <= height && (await leafOf(others[0])) === leaf;
}

/**
 * What a proof of a key shows, step by step.
 * @param {any} proof the answer to `entities/{key}?proof=true`
 * @param {Uint8Array} key the key that was asked for
 * @param {string} trusted the hash that the block must have, in hexadecimal
 * @returns {Promise<[string, boolean][]>}
 */
export async function checkedState(proof, key, trusted) {
  const { stateProof: state, merkleProof: merkle, blockHeader: header } = proof;
  const way = await sha256(key);
  const roots = async () => {
    const others = state.otherBucketRoots.map(hash32);
    if (others.length !== BUCKETS - 1) return "";
    return toHex(await sha256(...others.slice(0, state.bucketId), hash32(state.bucketRoot), ...others.slice(state.bucketId)));
  };
  const leads = async () => {
    const isEmpty = toHex(hash32(merkle.leafHash)) === ZERO && !(merkle.siblings ?? []).length && !(state.bucketEntries ?? []).length;
    return toHex(hash32(state.bucketRoot)) === (isEmpty ? EMPTY : await rootFrom(way, merkle));
  };
  const told = () => proof.value === undefined || (number(state.version) > 0n && toHex(fromBase64(proof.value)) === toHex(fromBase64(state.value)));
  const heights = () => [state.blockHeight, proof.blockHeight].every((one) => number(one) === number(header.height));
  return [
    ["The proof is about this key, in its bucket.", await holds(() => toHex(fromBase64(state.key)) === toHex(key) && state.bucketId === bucketOf(key))],
    ["The entry, or what stands in its place, is the leaf of the proof.", await holds(() => endHolds(proof, key, way))],
    ["The leaf leads to the root of the bucket.", await holds(leads)],
    ["The 256 roots of buckets give the state root of the block.", await holds(async () => (await roots()) === toHex(hash32(header.stateRoot)) && toHex(hash32(state.stateRoot)) === toHex(hash32(header.stateRoot)))],
    ["The value and the height of the answer are those of the proof.", await holds(() => told() && heights())],
    ["The hash of the block is the one that the chain has.", await holds(async () => (await blockHash(header)) === trusted)],
  ];
}

/** @param {() => boolean | Promise<boolean>} step */
async function holds(step) {
  try {
    return await step();
  } catch {
    return false;
  }
}
