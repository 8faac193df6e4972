// The whole suite is one exported function that registers its describe() groups when called.
// `subscriptions` registers the group of the control routes, which is off by default.
import { appendFileSync } from "node:fs"

import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.SEMEL_URL
if (!baseUrl) throw new Error("SEMEL_URL must name the server under test")

// Whoever reads the results has to know whether this process stood still meanwhile.
let lookedAt = performance.now()
setInterval(() => {
  const heldUpMs = performance.now() - lookedAt
  lookedAt += heldUpMs
  if (heldUpMs > Number(process.env.HELD_UP_MS)) appendFileSync(process.env.HELD_UP_FILE, `${heldUpMs}\n`)
}, 20).unref()

runConformanceTests({ baseUrl, longPollTimeoutMs: 20_000, subscriptions: true })
