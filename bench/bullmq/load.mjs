// BullMQ under the same load as Semel: so many callers in one process, each with one call under way.
//
//   node load.mjs --measure submit|duplicate|bulk|cycle --port 6379 [--connections 1]
//
// Callers share the connections that they are given. On one, the commands of all callers go out in a row without waiting
// for one another, and Redis syncs once for all that it finds: BullMQ at its best. A key is a custom job id; a cycle is
// run by BullMQ's own worker, which finishes a job and fetches the next in one call. One JSON object is printed.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const { values: asked } = parseArgs({
  options: {
    measure: { type: "string" },
    port: { type: "string" },
    connections: { type: "string", default: "1" },
    "at-once": { type: "string", default: "64" },
    bulk: { type: "string", default: "100" },
    jobs: { type: "string", default: "40000" },
    keys: { type: "string", default: "1000" },
    params: { type: "string" },
    warm: { type: "string", default: "0.5" },
    window: { type: "string", default: "3" },
  },
});
const NAME = "bench";
const params = JSON.parse(asked.params);
const atOnce = Number(asked["at-once"]);
const [warmMs, windowMs] = [Number(asked.warm) * 1000, Number(asked.window) * 1000];

const connect = () => new Redis({ host: "127.0.0.1", port: Number(asked.port), maxRetriesPerRequest: null });
const queues = Array.from({ length: Number(asked.connections) }, () => new Queue(NAME, { connection: connect() }));

const job = (key) => ({ name: "clicked", data: params, opts: { jobId: key } });
const fresh = (count) => Array.from({ length: count }, () => job(randomUUID()));
const add = (queue, { name, data, opts }) => queue.add(name, data, opts);

function figures(milliseconds, jobsEach, seconds) {
  const times = milliseconds.sort((one, other) => one - other);
  const at = (share) => times[Math.floor(times.length * share)] ?? 0;
  return { per_second: (times.length * jobsEach) / seconds, p50_ms: at(0.5), p99_ms: at(0.99), errors: 0 };
}

// So many callers in a closed loop; an error ends the program.
async function closedLoop(callers, jobsEach, call) {
  const times = [];
  let isOpen = false;
  let isOver = false;
  const caller = async (number) => {
    while (!isOver) {
      const began = performance.now();
      await call(queues[number % queues.length]);
      if (isOpen) times.push(performance.now() - began);
    }
  };
  const running = Promise.all(Array.from({ length: callers }, (_, number) => caller(number)));
  await sleep(warmMs);
  isOpen = true;
  console.error("window opened");
  const began = performance.now();
  await sleep(windowMs);
  isOpen = false;
  console.error("window closed");
  const seconds = (performance.now() - began) / 1000;
  isOver = true;
  await running;
  return figures(times, jobsEach, seconds);
}

async function prefill(jobs) {
  for (let start = 0; start < jobs.length; start += 500) await queues[0].addBulk(jobs.slice(start, start + 500));
}

async function duplicates() {
  const jobs = fresh(Number(asked.keys));
  await prefill(jobs);
  let number = 0;
  const found = await closedLoop(atOnce, 1, (queue) => add(queue, jobs[number++ % jobs.length]));
  const waiting = await queues[0].getWaitingCount();
  if (waiting !== jobs.length) throw new Error(`${waiting} jobs wait instead of ${jobs.length}`);
  return found;
}

// From the end of the warm-up until the window is over, or until the last job when they run out.
async function cycles() {
  const jobs = Number(asked.jobs);
  await prefill(fresh(jobs));
  let done = 0;
  let lastAt = 0;
  const options = { connection: connect(), concurrency: atOnce, autorun: false };
  const worker = new Worker(NAME, async () => ({ ok: true }), options);
  const empty = new Promise((resolve) => {
    worker.on("completed", () => {
      lastAt = performance.now();
      if (++done === jobs) resolve();
    });
  });
  worker.run();
  while (!done) await sleep(1);
  await sleep(warmMs);
  console.error("window opened");
  const [doneBefore, began] = [done, performance.now()];
  await Promise.race([empty, sleep(windowMs)]);
  console.error("window closed");
  if (done === doneBefore) throw new Error("the jobs ran out before the window opened");
  return { per_second: ((done - doneBefore) * 1000) / (lastAt - began), p50_ms: 0, p99_ms: 0, errors: 0 };
}

const bulk = Number(asked.bulk);
const measures = {
  submit: () => closedLoop(atOnce, 1, (queue) => add(queue, job(randomUUID()))),
  duplicate: duplicates,
  bulk: () => closedLoop(4, bulk, (queue) => queue.addBulk(fresh(bulk))),
  cycle: cycles,
};
console.log(JSON.stringify(await measures[asked.measure]()));
process.exit(0); // a worker would wait for its jobs, and connections for their end
