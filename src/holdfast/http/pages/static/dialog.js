// Dialogs, copying, the theme: what a click does. Without this file the same links are pages of their own.
const dialog = document.getElementById("dialog");
let opener = null;

export async function open(url, from) {
  opener = from ?? document.activeElement;
  await htmx.ajax("GET", url, { target: "#dialog", swap: "innerHTML" });
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("[autofocus], .form input:not([type=hidden]), .form textarea, footer .main-act")?.focus();
}

export function close() {
  dialog.close();
}

dialog.addEventListener("close", () => {
  if (dialog.open) return; // another one has opened meanwhile
  dialog.replaceChildren();
  opener?.focus?.();
});

dialog.addEventListener("cancel", (event) => { if (dialog.querySelector("[data-once]")) event.preventDefault(); });

async function copy(node, text) {
  try {
    await navigator.clipboard.writeText(text);
    document.getElementById("said").textContent = "copied";
    node.classList.add("copied");
    setTimeout(() => node.classList.remove("copied"), 1200);
  } catch {
    getSelection().selectAllChildren(node);
  }
}

const THEMES = { "": "as the system", light: "light", dark: "dark" };
function named() {
  const chosen = document.documentElement.dataset.theme ?? "";
  document.querySelector("[data-theme-toggle]")?.setAttribute("aria-label", `Theme: ${THEMES[chosen]}`);
}
named();

// A field for JSON says at once that something is no JSON.
addEventListener("input", ({ target }) => {
  if (!target.matches?.("textarea.mono")) return;
  let wrong = "";
  try { if (target.value.trim()) JSON.parse(target.value); } catch (error) { wrong = `This is not JSON: ${error.message}`; }
  target.setCustomValidity(wrong);
  if (wrong) target.setAttribute("aria-invalid", "true");
  else target.removeAttribute("aria-invalid");
});

addEventListener("click", (event) => {
  const from = event.target.closest?.("[data-dialog], [data-close], [data-copy], [data-copy-next], [data-theme-toggle], tr[data-href]");
  if (!from || event.defaultPrevented) return;
  if ("dialog" in from.dataset) {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    open(from.href, from);
  } else if ("close" in from.dataset) close();
  else if ("copy" in from.dataset) copy(from, from.textContent);
  else if ("copyNext" in from.dataset) copy(from, from.closest("section").querySelector("pre").textContent);
  else if ("themeToggle" in from.dataset) {
    const root = document.documentElement, next = { "": "light", light: "dark", dark: "" }[root.dataset.theme ?? ""];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    try { if (next) localStorage.setItem("theme", next); else localStorage.removeItem("theme"); } catch { /* it keeps nothing */ }
    named();
  } else if (!event.target.closest("a, button, input, label") && !getSelection().toString()) location.href = from.dataset.href;
});
