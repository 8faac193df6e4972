// The hashes of the ledger, computed in the browser with WebCrypto, so that a proof is checked by the page and not by the
// server that gave it. The bytes are those of the reference, "Ledger proofs".

const encoder = new TextEncoder();

/** @param {string} text base64 */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

/** @param {Uint8Array} bytes */
export const toHex = (bytes) => [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");

/** @param {{value: string} | undefined} hash */
export const hashHex = (hash) => toHex(fromBase64(hash?.value ?? ""));

/** Whether this browser computes hashes here: it does over https and on loopback. */
export const canHash = () => Boolean(globalThis.crypto?.subtle);

/** @param {...Uint8Array} parts */
export function joined(...parts) {
  const all = new Uint8Array(parts.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of parts) {
    all.set(one, at);
    at += one.length;
  }
  return all;
}

/** @param {...Uint8Array} parts */
export async function sha256(...parts) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));
}

/**
 * A number of 8 bytes, big-endian.
 * @param {string | number | undefined} value
 */
export function wide(value) {
  const [bytes, number] = [new Uint8Array(8), BigInt(value ?? 0)];
  // A greater number would have the hash of its lower bits.
  if (number >> 64n > 0n || number >> 63n < -1n) throw new Error(`${value} is no number of the ledger`);
  new DataView(bytes.buffer).setBigUint64(0, BigInt.asUintN(64, number));
  return bytes;
}

/**
 * A length or a count of 4 bytes, little-endian.
 * @param {number} value
 */
function narrow(value) {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** @param {Uint8Array} bytes */
export const sized = (bytes) => joined(narrow(bytes.length), bytes);

/** @param {string | undefined} text */
const named = (text) => sized(encoder.encode(text ?? ""));

/**
 * Seconds since 1970 in 8 bytes, and nanoseconds in 4, both big-endian.
 * @param {string} text RFC 3339 in UTC
 */
function instant(text) {
  const found = /^(.{19})(?:\.(\d{1,9}))?Z$/.exec(text);
  if (!found) throw new Error(`${text} is no time of the ledger`);
  const nanos = new Uint8Array(4);
  new DataView(nanos.buffer).setUint32(0, Number((found[2] ?? "").padEnd(9, "0")));
  return joined(wide(Date.parse(`${found[1]}Z`) / 1000), nanos);
}

/**
 * The hash of a block, from its header.
 * @param {any} header
 */
export async function blockHash(header) {
  const hashes = [header.previousHash, header.txMerkleRoot, header.stateRoot].map((one) => fromBase64(one.value));
  return toHex(
    await sha256(
      wide(header.height),
      wide(header.organization.slug),
      wide(header.vault?.slug),
      ...hashes,
      instant(header.timestamp),
      wide(header.term),
      wide(header.committedIndex),
    ),
  );
}

/**
 * The hash of a transaction.
 * @param {any} one
 */
export async function transactionHash(one) {
  const operations = (one.operations ?? []).map(operationBytes);
  return sha256(
    fromBase64(one.id.id),
    named(one.clientId?.id),
    wide(one.sequence),
    named(one.actor),
    narrow(operations.length),
    ...operations,
    instant(one.timestamp),
  );
}

/** @param {any} one */
function operationBytes(one) {
  const [[kind, given]] = Object.entries(one);
  const tag = (/** @type {number} */ value) => Uint8Array.of(value);
  const relation = () => joined(named(given.resource), named(given.relation), named(given.subject));
  if (kind === "createRelationship") return joined(tag(1), relation());
  if (kind === "deleteRelationship") return joined(tag(2), relation());
  if (kind === "setEntity") return joined(tag(3), named(given.key), sized(fromBase64(given.value ?? "")), conditionBytes(given.condition), wide(given.expiresAt));
  if (kind === "deleteEntity") return joined(tag(4), named(given.key));
  if (kind === "expireEntity") return joined(tag(5), named(given.key), wide(given.expiredAt));
  throw new Error(`${kind} is no operation of the ledger`);
}

/** @param {any} given */
function conditionBytes(given) {
  const [kind, value] = Object.entries(given ?? {})[0] ?? ["", null];
  if (kind === "") return Uint8Array.of(0);
  if (kind === "notExists" || kind === "mustExists") return Uint8Array.of((kind === "notExists") === value ? 1 : 2);
  if (kind === "version") return joined(Uint8Array.of(3), wide(value));
  if (kind === "valueEquals") return joined(Uint8Array.of(4), sized(fromBase64(value)));
  throw new Error(`${kind} is no condition of the ledger`);
}

/**
 * What a proof shows, step by step; a step that fails is false.
 * @param {any} proof the answer to `blocks/{height}/proof`
 * @param {string} trusted the hash that the block must have, in hexadecimal
 * @returns {Promise<[string, boolean][]>}
 */
export async function checkedProof(proof, trusted) {
  const { blockHeader: header, txProof, transaction } = proof;
  const leaf = await transactionHash(transaction);
  let root = leaf;
  for (const one of txProof.siblings ?? []) {
    const sibling = fromBase64(one.hash.value);
    root = one.direction === "DIRECTION_LEFT" ? await sha256(sibling, root) : await sha256(root, sibling);
  }
  return [
    ["The hash of the transaction is the leaf of the proof.", toHex(leaf) === hashHex(txProof.leafHash)],
    ["The leaf leads to the root of the block's transactions.", toHex(root) === hashHex(header.txMerkleRoot)],
    ["Transaction and block have the same time.", transaction.timestamp === header.timestamp],
    ["The hash of the block is the one that the chain has.", (await blockHash(header)) === trusted],
  ];
}

/**
 * Check that each block has the hash of the one before, and its transactions; the first height that fails, or null.
 * @param {any[]} blocks ascending
 * @param {string} tip the hash that the last one must have, in hexadecimal; empty to leave that out
 * @returns {Promise<{height: string, why: string} | null>}
 */
export async function brokenLink(blocks, tip) {
  let before = "";
  for (const { header, transactions = [] } of blocks) {
    const fail = (/** @type {string} */ why) => ({ height: header.height, why });
    if (before && hashHex(header.previousHash) !== before) return fail("it has not the hash of the block before");
    if (header.height === "1" && !/^0*$/.test(hashHex(header.previousHash))) return fail("the first block follows nothing");
    if (transactions.length === 1 && toHex(await transactionHash(transactions[0])) !== hashHex(header.txMerkleRoot)) return fail("its transaction has another hash");
    before = await blockHash(header);
  }
  const last = blocks[blocks.length - 1]?.header.height ?? "0";
  return tip && before !== tip ? { height: last, why: "it has not the hash of the tip" } : null;
}
