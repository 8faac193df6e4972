// The official client of Durable Streams for JavaScript, driven against a server; prints what it saw as JSON.

import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

const root = `${process.env.SEMEL_URL}/v1/stream/${process.env.SEMEL_PREFIX}`
const json = "application/json"
const seen = {}

/** The first `count` items that a live read gives from an offset on, while `write` appends. */
async function tailed(url, offset, live, count, write) {
  const items = []
  const ending = new AbortController()
  const response = await stream({ url, offset, live, signal: ending.signal })
  const all = new Promise((resolve) => {
    response.subscribeJson(async (batch) => {
      items.push(...batch.items)
      if (items.length >= count) resolve()
    })
  })
  await write()
  await all
  ending.abort()
  return items
}

// create, append, read, head
const url = `${root}/log`
const log = await DurableStream.create({ url, contentType: json, ttlSeconds: 3600 })
for (const number of [1, 2, 3]) await log.append(JSON.stringify({ number }))
const read = await log.stream({ live: false })
seen.read = await read.json()
const head = await log.head()
seen.head = { contentType: head.contentType, isAtEnd: head.offset === read.offset, closed: head.streamClosed }

// tail, in both live modes, from the end on
seen.polled = await tailed(url, read.offset, "long-poll", 2, async () => {
  await log.append(JSON.stringify({ number: 4 }))
  await log.append(JSON.stringify({ number: 5 }))
})
seen.events = await tailed(url, read.offset, "sse", 3, () => log.append(JSON.stringify({ number: 6 })))

// a producer, whose batches are numbered
const producer = new IdempotentProducer(log, "till-3", { autoClaim: true })
for (let number = 7; number < 207; number += 1) producer.append(JSON.stringify({ number }))
await producer.flush()
await producer.detach()

// fork, at the tail and at an offset; the client has no call for it, so that it is a header of `create`
const forked = { "Stream-Forked-From": new URL(url).pathname }
await DurableStream.create({ url: `${root}/whole`, contentType: json, headers: forked })
const early = await DurableStream.create({
  url: `${root}/early`,
  contentType: json,
  headers: { ...forked, "Stream-Fork-Offset": read.offset },
})
await new DurableStream({ url: `${root}/early`, contentType: json }).append(JSON.stringify({ own: true }))

// close with a last message; then it is at its end for every reader
const closed = await log.close({ body: JSON.stringify({ last: true }) })
const ended = await stream({ url, live: true })
seen.numbers = (await ended.json()).map((item) => item.number ?? null)
seen.closed = { isAtEnd: closed.finalOffset === ended.offset, streamClosed: ended.streamClosed }
seen.refused = await log.append(JSON.stringify({ late: true })).then(
  () => "stored",
  (error) => error.status,
)
seen.whole = (await (await stream({ url: `${root}/whole`, live: false })).json()).length
seen.early = await (await stream({ url: `${root}/early`, live: false })).json()

// bytes
const bytes = new Uint8Array(100_000).map((_, place) => place % 251)
const blob = await DurableStream.create({ url: `${root}/blob`, contentType: "application/octet-stream", body: bytes })
const back = await (await blob.stream({ live: false })).body()
seen.bytes = back.length === bytes.length && back.every((value, place) => value === bytes[place])

await early.delete()
seen.exists = (await early.head()).exists

console.log(JSON.stringify(seen))
