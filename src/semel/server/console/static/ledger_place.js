// Places of the ledger: their paths, their names in commands, and the hashes that their chains have.
import { path, read } from "./api.js";
import { hashHex } from "./ledger_hashes.js";

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
export async function trustedHash(place, height, signal) {
  const tip = await read(`${place}/tip`, { signal });
  if (Number(tip.height) === height) return hashHex(tip.blockHash);
  const { block } = await read(`${place}/blocks/${height + 1}`, { signal });
  return hashHex(block.header.previousHash);
}
