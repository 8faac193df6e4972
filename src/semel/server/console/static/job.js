// One job: its timeline, params, errors and result, and the orders that an administrator may give it.
import { CallError, isAdmin, path, read } from "./api.js";
import { badge, command, confirmed, facts, h, heading, notify, show } from "./dom.js";
import { ago, brief, content, count, duration, json, time } from "./format.js";

/**
 * @param {HTMLElement} view
 * @param {string} id
 * @param {AbortSignal} signal
 */
export async function renderJob(view, id, signal) {
  const job = await read(path`/v1/jobs/${id}`, { signal });
  const back = h("a", { href: "#/jobs" }, "All jobs");
  show(
    view,
    heading(job.job_id, h("span", null, brief(job.kind), " in ", brief(job.queue)), back, orders(job)),
    h("p", null, badge(job.state), job.reason ? ` ${job.reason}` : "", job.cancel_requested ? " cancel requested" : ""),
    h("h2", null, "Timeline"),
    timeline(job),
    h("h2", null, "Facts"),
    facts([
      ["Request", h("code", null, job.request_id)],
      ["Attempt", `${job.attempt} of ${job.max_attempts}`],
      ["Priority", String(job.priority)],
      ["Revision", String(job.revision)],
      ["Lease", `${count(job.lease_sec)} s`],
      ["Time limit of a run", job.timeout_ms === null ? null : duration(job.timeout_ms / 1000)],
      ["Worker", job.worker_id ? brief(job.worker_id) : null],
      ["Key expires", job.expires_utc ? time(job.expires_utc) : null],
      ["Progress", job.progress ? h("code", null, brief(job.progress, 400)) : null],
    ]),
    h("h2", null, "Params"),
    content("Params", json(job.params)),
    result(job),
    h("h2", null, "Command"),
    command(`semel jobs show ${job.job_id}`),
  );
}

/** @param {any} job */
function timeline(job) {
  const step = (/** @type {string} */ kind, /** @type {any} */ at, /** @type {any[]} */ ...text) => h("li", { class: kind }, time(at), " ", text, at ? h("span", { class: "muted" }, ` (${ago(at)})`) : null);
  const errors = (job.errors ?? []).map((/** @type {any} */ one) =>
    step("bad", one.at_utc, h("strong", null, `run ${one.attempt} failed`), ` ${brief(one.code ?? "")}: `, h("span", { class: "long" }, brief(one.message ?? "", 400)), one.worker_id ? h("span", { class: "muted" }, ` on ${brief(one.worker_id)}`) : null),
  );
  const isOpen = !job.finished_utc;
  return h(
    "ol",
    { class: "timeline" },
    step("", job.created_utc, h("strong", null, "submitted")),
    job.run_at_utc && job.run_at_utc !== job.created_utc ? step("", job.run_at_utc, h("strong", null, new Date(job.run_at_utc) > new Date() ? "becomes ready" : "became ready")) : null,
    errors,
    job.lease_until_utc ? step("", job.lease_until_utc, h("strong", null, "the lease ends"), job.worker_id ? ` of ${brief(job.worker_id)}` : "") : null,
    isOpen ? null : step(job.state === "completed" ? "good" : "bad", job.finished_utc, h("strong", null, job.state), job.worker_id ? ` by ${brief(job.worker_id)}` : ""),
  );
}

/** @param {any} job */
function result(job) {
  if (!job.finished_utc) return null;
  const cached = job.cached_result;
  return [
    h("h2", null, cached?.ok === false ? "Error" : "Result"),
    cached === undefined ? h("p", { class: "muted" }, `Not shown: ${job.cached_result_omitted ?? "unknown"}.`) : content("Result", json(cached.ok ? cached.result : cached.error)),
    job.result_sha256 ? h("p", { class: "muted long" }, "SHA-256 ", h("code", null, job.result_sha256)) : null,
  ];
}

/** @param {any} job */
function orders(job) {
  if (!isAdmin()) return null;
  const button = (/** @type {string} */ label, /** @type {string} */ order, /** @type {string} */ question, /** @type {string} */ about) => {
    const run = async () => {
      if (!(await confirmed(question, about, label))) return;
      try {
        await read(path`/v1/jobs/${job.job_id}/` + order, { method: "POST", body: {} });
        notify("Done.");
      } catch (error) {
        if (!(error instanceof CallError)) throw error;
        notify(error.message);
      }
      dispatchEvent(new Event("hashchange"));
    };
    return h("button", { type: "button", class: order === "cancel" ? "danger" : "", onclick: run }, label);
  };
  if (job.state === "failed") return button("Requeue", "requeue", "Run this job again?", "It keeps its id and its key, and begins with fresh attempts.");
  return job.finished_utc ? null : button("Cancel", "cancel", "Cancel this job?", "A job that is worked on ends when its worker next asks.");
}
