// Fills the choice of versions from versions.json, one folder above the pages. Without it the page shows its own version.
(() => {
  const box = document.querySelector(".versions");
  if (!box || location.protocol === "file:") return;
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const above = new URL("../", root);
  fetch(new URL("versions.json", above))
    .then((answer) => (answer.ok ? answer.json() : [box.dataset.version]))
    .then((versions) => {
      const choice = box.querySelector("select");
      choice.replaceChildren(...versions.map((version) => new Option(version, version, false, version === box.dataset.version)));
      choice.disabled = versions.length < 2;
      choice.addEventListener("change", async () => {
        const page = location.href.slice(root.href.length);
        const same = new URL(`${choice.value}/${page}`, above);
        const found = await fetch(same, { method: "HEAD" });
        location.href = found.ok ? same : new URL(`${choice.value}/`, above);
      });
    })
    .catch(() => {});
})();
