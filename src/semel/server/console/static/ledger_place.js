// Places of the ledger: their paths, their names in commands, the hashes of their blocks, and how a proof is verified.
import { path, read } from "./api.js";
import { command, h } from "./dom.js";
import { shellWord } from "./format.js";

/** @param {string} text base64 */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

/** @param {{value: string} | undefined} hash */
export const hashHex = (hash) => [...fromBase64(hash?.value ?? "")].map((one) => one.toString(16).padStart(2, "0")).join("");

/**
 * @param {string} org
 * @param {string} vault 0 for the organization's own place
 */
export const placeOf = (org, vault) => (vault === "0" ? path`/ledger/v1/orgs/${org}` : path`/ledger/v1/orgs/${org}/vaults/${vault}`);

/**
 * A place as commands name it.
 * @param {string} org
 * @param {string} vault
 */
export const spelled = (org, vault) => (vault === "0" ? org : `${org}/${vault}`);

/**
 * The hash that the chain has for a block: what the next one says, or the tip.
 * @param {string} place
 * @param {number} height
 * @param {AbortSignal} signal
 */
export async function chainHash(place, height, signal) {
  const tip = await read(`${place}/tip`, { signal });
  if (Number(tip.height) === height) return hashHex(tip.blockHash);
  const { block } = await read(`${place}/blocks/${height + 1}`, { signal });
  return hashHex(block.header.previousHash);
}

/**
 * The commands that save a proof and verify it, to copy.
 * @param {string} saved the command that writes proof.json
 * @param {string} place as commands name it
 * @param {string} height
 * @param {string} hash of that block
 * @param {string | null} [key] of a proof of a key
 */
export function proofCommands(saved, place, height, hash, key = null) {
  const about = key === null ? "" : ` --key ${shellWord(key)}`;
  return [
    h("h2", null, "Proof"),
    h("p", { class: "long" }, "Save the proof, then verify it. The second command asks no server. It trusts the hash that this server names: for evidence, give one that you have kept yourself."),
    command(saved),
    command(`semel ledger verify proof.json --place ${place}${about} --trust ${height}:${hash}`),
  ];
}
