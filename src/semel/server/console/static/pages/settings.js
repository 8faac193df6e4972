// Settings: every setting in force, with where its value comes from.
import { isAdmin, query, read } from "../api.js";
import { badge, empty, h, heading, show, table } from "../dom.js";

/**
 * @param {HTMLElement} view
 * @param {{query: URLSearchParams}} route
 * @param {AbortSignal} signal
 */
export async function render(view, route, signal) {
  const title = heading("Settings", "What is in force now. Secrets are not shown.");
  if (!isAdmin()) {
    show(view, title, empty("Settings need a token with the admin role and without scopes.", "semel token create NAME --role admin"));
    return;
  }
  const { settings } = await read("/v1/settings", { signal });
  const words = h("input", { type: "search", "aria-label": "Filter settings", placeholder: "Filter", value: route.query.get("text") });
  const changed = h("input", { type: "checkbox", id: "changed" });
  changed.checked = route.query.get("changed") === "1";
  const list = h("div");
  const draw = () => show(list, drawn(settings, words.value.trim().toLowerCase(), changed.checked));
  for (const one of [words, changed]) {
    one.addEventListener("input", () => {
      history.replaceState(null, "", `#/settings${query({ text: words.value, changed: changed.checked ? 1 : "" })}`);
      draw();
    });
  }
  const filters = h("div", { class: "filters" }, words, h("label", null, changed, " not the default"));
  show(view, title, filters, list);
  draw();
}

/**
 * @param {any[]} settings
 * @param {string} text
 * @param {boolean} changed
 */
function drawn(settings, text, changed) {
  const rows = settings.filter(
    (one) => (!changed || one.origin !== "default") && `${one.name} ${one.value} ${one.about}`.toLowerCase().includes(text),
  );
  return table(
    "Settings",
    [
      { title: "Setting", cell: (one) => h("code", null, one.name), kind: "id" },
      { title: "Value", cell: (one) => h("span", { class: "mono" }, shown(one.value)), kind: "name" },
      { title: "Origin", cell: (one) => origin(one) },
      { title: "Meaning", cell: (one) => one.about, kind: "long muted" },
    ],
    rows,
    empty("No setting matches; give a value with a flag, a variable or in the file.", "semel config show --changed"),
  );
}

/** @param {any} value */
function shown(value) {
  if (value === "") return "–";
  return typeof value === "boolean" ? (value ? "on" : "off") : String(value);
}

/** @param {any} one */
function origin(one) {
  if (one.origin === "default") return h("span", { class: "muted" }, "default");
  return h("span", { title: one.place }, badge(one.origin), " ", h("span", { class: "muted" }, one.place.replace(/^in /, "")));
}
