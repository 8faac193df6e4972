// Insieme's own server, with its SQLite store as it ships: what a benchmark sets Semel beside.
//
//   node server.mjs --port 4100 --data events.db [--synchronous FULL]
//
// The store is the one that Insieme's README names for Node, over Node's built-in SQLite. Its defaults are a
// write-ahead log and synchronous=FULL, which is a sync for every event. Every token is good and names the client. The
// limit of 200 messages a second for a connection is lifted, because one connection of a benchmark sends more.

import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";

import { createSqliteSyncStore, createSyncServer, createWsServerRuntime } from "insieme/node";
import { WebSocketServer } from "ws";

const { values: asked } = parseArgs({
  options: {
    port: { type: "string" },
    data: { type: "string" },
    synchronous: { type: "string", default: "FULL" },
  },
});

const store = createSqliteSyncStore(new DatabaseSync(asked.data), { synchronous: asked.synchronous });
await store.init();

const syncServer = createSyncServer({
  auth: { verifyToken: async (token) => ({ clientId: token, claims: {} }) },
  authz: { authorizeProject: async () => true },
  validation: { validate: async () => {} },
  store,
  clock: { now: () => Date.now() },
  limits: { maxInboundMessagesPerWindow: 1_000_000_000 },
});

const wsServer = new WebSocketServer({ host: "127.0.0.1", port: Number(asked.port) });
createWsServerRuntime({ wsServer, syncServer });
process.once("SIGTERM", () => process.exit(0));
