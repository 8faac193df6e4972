// The reference server of Durable Streams with its file storage: each append is synced before it is answered. Its lines
// about slow appends are left out, because Semel is measured without a log too.
//
//   node server.mjs --port 4437 --data folder

import { parseArgs } from "node:util";

import { DurableStreamTestServer } from "@durable-streams/server";

const { values: asked } = parseArgs({ options: { port: { type: "string" }, data: { type: "string" } } });
console.info = () => undefined;
const server = new DurableStreamTestServer({ host: "127.0.0.1", port: Number(asked.port), dataDir: asked.data });
await server.start();
process.once("SIGTERM", () => process.exit(0));
