// A published Insieme client over a real socket, led by lines of JSON: commands come in, everything that the client tells
// its application goes out as {"type", "payload"}.
//
//   node client.mjs --url ws://127.0.0.1:8788/v1/events --release 2.1.0 --client tablet-9 --project shop-4
//
// --release 1.3.0 has partitions (--partition, may be repeated) where 2.1.0 has a project. --data names a SQLite file that
// keeps drafts and history; without it they are in memory. --gate holds every sync message back until it is let pass.
//
// Commands: {"do": "start" | "stop" | "submit" | "sync" | "partitions" | "pass" | "state", ...}; each is answered by
// {"type": "done", "payload": {"do", ...}} or by {"type": "failed", ...}.

import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";

import WebSocket from "ws";

const { values: asked } = parseArgs({
  options: {
    url: { type: "string" },
    release: { type: "string" },
    client: { type: "string" },
    token: { type: "string" },
    project: { type: "string" },
    partition: { type: "string", multiple: true, default: [] },
    data: { type: "string" },
    gate: { type: "boolean", default: false },
    reconnect: { type: "boolean", default: false },
  },
});

const insieme = await import(asked.release === "2.1.0" ? "insieme/node" : "insieme-1.3/server");

const tell = (type, payload = {}) => process.stdout.write(`${JSON.stringify({ type, payload })}\n`);

const gated = (transport) => {
  const waiting = [];
  let allowance = 0;
  return {
    ...transport,
    send: async (message) => {
      if (asked.gate && message.type === "sync" && allowance === 0) {
        tell("held", message.payload);
        await new Promise((resolve) => waiting.push(resolve));
      } else if (message.type === "sync") {
        allowance -= 1;
      }
      await transport.send(message);
    },
    pass: () => (waiting.length > 0 ? waiting.shift()() : (allowance += 1)),
  };
};

const transport = gated(insieme.createBrowserWebSocketTransport({ url: asked.url, WebSocketImpl: WebSocket }));
const store = asked.data
  ? insieme.createSqliteClientStore(new DatabaseSync(asked.data))
  : insieme.createInMemoryClientStore();
const client = insieme.createSyncClient({
  transport,
  store,
  token: asked.token ?? asked.client,
  clientId: asked.client,
  projectId: asked.project,
  partitions: asked.partition,
  reconnect: { enabled: asked.reconnect, initialDelayMs: 100, maxDelayMs: 500 },
  onEvent: ({ type, payload }) => tell(type, payload),
});

const commands = {
  start: () => client.start(),
  stop: () => client.stop(),
  submit: async ({ events }) => {
    if (client.submitEvents) {
      await client.submitEvents(events);
    } else {
      for (const event of events) await client.submitEvent(event);
    }
  },
  sync: () => client.syncNow(),
  partitions: ({ names, since }) => client.setPartitions(names, { sinceCommittedId: since }),
  pass: async () => transport.pass(),
  state: async () => ({
    drafts: (await store.loadDraftsOrdered()).map((draft) => draft.id),
    committed: await store._debug.getCommitted(),
    cursor: await store.loadCursor(),
    status: client.getStatus(),
  }),
};

createInterface({ input: process.stdin })
  .on("line", async (line) => {
    const command = JSON.parse(line);
    try {
      tell("done", { do: command.do, ...(await commands[command.do](command)) });
    } catch (error) {
      tell("failed", { do: command.do, message: error.message });
    }
  })
  .on("close", () => process.exit(0));
