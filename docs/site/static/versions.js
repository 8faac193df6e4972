// Offers the other versions, named by versions.json one folder above the pages. Without it a page shows its own version.
(() => {
  const box = document.querySelector(".versions");
  if (!box || location.protocol === "file:") return;
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const above = new URL("../", root);

  const link = (version) => {
    const there = document.createElement("a");
    const same = new URL(`${version}/${location.href.slice(root.href.length)}`, above);
    there.textContent = version;
    there.href = same.href;
    if (version === box.dataset.version) there.setAttribute("aria-current", "true");
    there.addEventListener("click", async (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const found = await fetch(same, { method: "HEAD" });
      location.href = found.ok ? same.href : new URL(`${version}/`, above).href;
    });
    return there;
  };

  const show = (versions) => {
    if (versions.length < 2) return;
    const menu = document.createElement("details");
    const name = document.createElement("summary");
    const list = document.createElement("ul");
    name.textContent = box.textContent;
    for (const version of versions) list.appendChild(document.createElement("li")).append(link(version));
    menu.append(name, list);
    box.replaceChildren(menu);
  };

  fetch(new URL("versions.json", above))
    .then((answer) => (answer.ok ? answer.json() : []))
    .then(show)
    .catch(() => {});
})();
