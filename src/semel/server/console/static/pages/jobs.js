// Jobs: by state, queue and kind; dead letters; requeue and cancel in bulk. One job is shown by job.js.
import { CallError, isAdmin, path, query, read } from "../api.js";
import { badge, confirmed, empty, h, heading, notify, show, table } from "../dom.js";
import { brief, second } from "../format.js";
import { renderJob } from "../job.js";

const STATES = ["", "queued", "scheduled", "leased", "waiting", "completed", "failed", "dead"];
const PAGE = 100;

/**
 * @param {HTMLElement} view
 * @param {{parts: string[], query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  if (route.parts[0]) return renderJob(view, route.parts[0], signal);
  const asked = { state: route.query.get("state") ?? "", queue: route.query.get("queue") ?? "", kind: route.query.get("kind") ?? "" };
  const after = route.query.get("after") ?? "";
  const isDead = asked.state === "dead";
  const refresh = h("button", { type: "button", class: "quiet", onclick: () => dispatchEvent(new Event("hashchange")) }, "Refresh");
  const list = h("div");
  show(view, heading("Jobs", isDead ? "Dead letters: jobs that ended without a result." : "Newest first.", refresh), tabs(asked), filters(asked), list);
  view.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  if (isDead && !isAdmin()) {
    show(list, empty("Dead letters need a token with the admin role and without scopes.", "semel token create NAME --role admin"));
    return;
  }
  const url = isDead ? `/v1/jobs/dead${query({ after, limit: PAGE })}` : `/v1/jobs${query({ ...asked, after, limit: PAGE })}`;
  const { jobs, next } = await read(url, { signal });
  show(list, drawn(jobs, asked), more(asked, after, next));
}

/** @param {Record<string, string>} asked */
function tabs(asked) {
  const tab = (/** @type {string} */ state) => h("a", { href: `#/jobs${query({ ...asked, state })}`, "aria-current": state === asked.state ? "page" : null }, state === "dead" ? "dead letters" : state || "all");
  return h("nav", { class: "tabs", "aria-label": "States" }, STATES.map(tab));
}

/** @param {Record<string, string>} asked */
function filters(asked) {
  const [queue, kind] = ["queue", "kind"].map((name) => h("input", { type: "text", "aria-label": name, placeholder: name, value: asked[name], name }));
  const go = (/** @type {Event} */ event) => {
    event.preventDefault();
    location.hash = `#/jobs${query({ ...asked, queue: queue.value.trim(), kind: kind.value.trim() })}`;
  };
  return asked.state === "dead" ? null : h("form", { class: "filters", onsubmit: go }, queue, kind, h("button", { type: "submit" }, "Filter"));
}

/**
 * @param {any[]} jobs
 * @param {Record<string, string>} asked
 */
function drawn(jobs, asked) {
  /** @type {Set<string>} */
  const chosen = new Set();
  const boxes = jobs.map((one) => {
    const box = h("input", { type: "checkbox", "aria-label": `Choose ${one.job_id}` });
    box.addEventListener("change", () => (box.checked ? chosen.add(one.job_id) : chosen.delete(one.job_id), count()));
    return box;
  });
  const all = h("input", { type: "checkbox", "aria-label": "Choose all of this page" });
  all.addEventListener("change", () => {
    boxes.forEach((box, place) => ((box.checked = all.checked), all.checked ? chosen.add(jobs[place].job_id) : chosen.delete(jobs[place].job_id)));
    count();
  });
  const buttons = [action("Requeue", "requeue", chosen, "Run these jobs again"), action("Cancel", "cancel", chosen, "Cancel these jobs")];
  const count = () => buttons.forEach((one) => (one.disabled = chosen.size === 0));
  const columns = [
    { title: "Job", cell: (/** @type {any} */ one) => h("a", { href: `#/jobs/${encodeURIComponent(one.job_id)}`, class: "mono" }, one.job_id), kind: "id" },
    { title: "State", cell: (/** @type {any} */ one) => [badge(one.state), one.reason ? h("span", { class: "muted" }, ` ${one.reason}`) : null] },
    { title: "Kind", cell: (/** @type {any} */ one) => brief(one.kind), kind: "name" },
    { title: "Queue", cell: (/** @type {any} */ one) => brief(one.queue, 80), kind: "name" },
    { title: "Run", cell: (/** @type {any} */ one) => `${one.attempt} of ${one.max_attempts}`, kind: "num" },
    ...(asked.state === "dead" ? [] : [{ title: "Created", cell: (/** @type {any} */ one) => second(one.created_utc), kind: "time" }]),
    { title: "Ended", cell: (/** @type {any} */ one) => second(one.finished_utc), kind: "time" },
    ...(asked.state === "dead" ? [{ title: "Error", cell: (/** @type {any} */ one) => brief(`${one.error?.code ?? ""} ${one.error?.message ?? ""}`), kind: "long" }] : []),
  ];
  if (!jobs.length) return nothing(asked);
  if (!isAdmin()) return table("Jobs", columns, jobs);
  const choice = { title: "Choose", cell: (/** @type {any} */ one) => boxes[jobs.indexOf(one)], kind: "check" };
  return [h("div", { class: "filters" }, h("label", null, all, " all of this page"), buttons), table("Jobs", [choice, ...columns], jobs)];
}

/** @param {Record<string, string>} asked */
function nothing(asked) {
  if (asked.state === "dead") return empty("There are no dead letters: no job has used up its runs.");
  if (asked.state || asked.queue || asked.kind) return empty("No job matches.", "semel jobs list");
  return empty("No job was submitted yet. Submit one:", `semel jobs submit hello '{"to": "world"}' --key job-1`);
}

/**
 * @param {string} label
 * @param {string} order
 * @param {Set<string>} chosen
 * @param {string} question
 */
function action(label, order, chosen, question) {
  const run = async () => {
    const ids = [...chosen];
    if (!(await confirmed(`${question}?`, `${ids.length} ${ids.length === 1 ? "job" : "jobs"}: ${brief(ids.join(", "), 200)}`, label))) return;
    const refused = await ordered(ids, order);
    notify(refused.length ? `${ids.length - refused.length} done, ${refused.length} refused: ${refused[0]}` : `${ids.length} done.`);
    dispatchEvent(new Event("hashchange"));
  };
  return h("button", { type: "button", class: order === "cancel" ? "danger" : "", onclick: run, disabled: true }, label);
}

/**
 * Give an order to each job, one after the other; the reasons of those that refuse it.
 * @param {string[]} ids
 * @param {string} order
 */
export async function ordered(ids, order) {
  /** @type {string[]} */
  const refused = [];
  for (const id of ids) {
    try {
      await read(path`/v1/jobs/${id}/` + order, { method: "POST", body: {} });
    } catch (error) {
      if (!(error instanceof CallError) || error.status === 401 || error.status === 0) throw error;
      refused.push(error.message);
    }
  }
  return refused;
}

/**
 * @param {Record<string, string>} asked
 * @param {string} after
 * @param {string | null} next
 */
function more(asked, after, next) {
  const link = (/** @type {string} */ text, /** @type {string} */ from) => h("a", { href: `#/jobs${query({ ...asked, after: from })}` }, text);
  return h("div", { class: "more" }, after ? link("Newest", "") : null, next ? link("Older", next) : null);
}
