// The theme, set before the first paint: that of the system unless the person in front of the page chose one.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("semel.theme");
  } catch {
    // Storage is turned off: the system decides.
  }
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
})();
