// The whole suite is one exported function that registers its describe() groups when called.
// `subscriptions` is left off: the server does not offer those routes.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.SEMEL_URL
if (!baseUrl) throw new Error("SEMEL_URL must name the server under test")

runConformanceTests({ baseUrl, longPollTimeoutMs: 20_000 })
