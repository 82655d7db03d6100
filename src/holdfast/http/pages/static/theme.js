// Before anything is drawn: the theme that was chosen in this browser. Without one, the system's.
(() => {
  const root = document.documentElement;
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* a browser that keeps nothing */ }
  if (chosen) root.dataset.theme = chosen;
})();
