// Keys, and the palette: find or do.
import { open } from "./dialog.js";

const LIST = [["⌘K or /", "find or do"], ["g, then a letter", "a page"], ["j k", "next, previous row"], ["↵", "open it"], ["x, ⇧x", "select a run, or all up to it"], ["⌘A", "select all runs of the page"], ["t s d i", "timeline, steps, data, journal of a run"], ["[ ]", "what went wrong before, next"], ["e", "open, shut a group of steps"], ["u", "what was undone"], ["+ − 0 ← →", "zoom and pan"], ["f", "fold waits"], [".", "what may be done here"], ["c", "copy the command"], ["Esc", "close the innermost"], ["?", "these keys"]];
let isGoing = false;
// Who speaks to a computer, or hits keys by accident, can switch off what a single key does.
export function isSilent() {
  try { return localStorage.getItem("keys") === "off"; } catch { return false; }
}
const rows = () => [...document.querySelectorAll("tr[data-href], .tl-row[tabindex]")];

function move(by) {
  const all = rows(), at = all.indexOf(document.activeElement.closest?.("tr, .tl-row"));
  const to = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  if (!to) return;
  last = to;
  to.tabIndex = 0;
  to.focus();
}

// A row that is morphed is one as it came from the server: no place for the focus. The keys go on where they were.
let last = null;
addEventListener("pointerdown", () => { last = null; });
addEventListener("htmx:after:swap", () => {
  if (!last?.isConnected || ![last, document.body].includes(document.activeElement)) return;
  last.tabIndex = 0;
  last.focus({ preventScroll: true });
});

function make(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function shown(title, ...children) {
  const dialog = document.getElementById("dialog");
  dialog.replaceChildren(make("h1", { id: "dialog-title", textContent: title, className: "sr" }), ...children);
  if (!dialog.open) dialog.showModal();
  return dialog;
}

function help() {
  const list = make("dl", { className: "keys" });
  for (const [key, words] of LIST) list.append(make("dt", {}, make("kbd", { textContent: key })), make("dd", { textContent: words }));
  const box = make("input", { type: "checkbox", className: "check", checked: isSilent() }), words = make("span", { textContent: "Single keys do nothing" });
  box.addEventListener("change", () => { try { if (box.checked) localStorage.setItem("keys", "off"); else localStorage.removeItem("keys"); } catch { /* it keeps nothing */ } });
  shown("Keys", list, make("div", { className: "form" }, make("label", { className: "inline" }, box, words)));
}

// Pages of the rail, what may be done on this page, and runs, which the server finds.
function palette() {
  const input = make("input", { className: "input", placeholder: "A run, a workflow, a page, or what to do", autocomplete: "off", spellcheck: false });
  input.setAttribute("aria-label", "Find or do");
  const own = make("div", { className: "found" }), found = make("div", { className: "found", id: "found" });
  const dialog = shown("Find or do", make("div", { className: "palette" }, input, own, found));
  const known = [...document.querySelectorAll(".rail .nav a, #content a[data-dialog]")].map((link) => ({ link, words: [...link.childNodes].filter((one) => one.nodeName !== "B").map((one) => one.textContent).join("").trim() }));
  const items = () => [...dialog.querySelectorAll(".found a")];
  let timer = 0;
  const draw = () => {
    const text = input.value.trim().toLowerCase();
    own.replaceChildren(...known.filter((one) => one.words.toLowerCase().includes(text)).slice(0, 8).map(({ link, words }) => {
      const made = make("a", { href: link.href, textContent: words });
      if ("dialog" in link.dataset) made.dataset.dialog = "";
      return made;
    }));
    clearTimeout(timer);
    if (text) timer = setTimeout(() => found.isConnected && htmx.ajax("GET", `/find?${new URLSearchParams({ q: input.value.trim(), ...Object.fromEntries([...new URLSearchParams(location.search)].filter(([name]) => name === "namespace")) })}`, { target: "#found", swap: "innerHTML" }), 80);
    else found.replaceChildren();
  };
  input.addEventListener("input", draw);
  dialog.addEventListener("keydown", (event) => {
    const all = items(), at = all.indexOf(document.activeElement), by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); (all[at + by] ?? (by < 0 ? input : all[0]))?.focus(); }
    if (event.key === "Enter" && document.activeElement === input) { event.preventDefault(); all[0]?.click(); }
  });
  draw();
  input.focus();
}

addEventListener("click", (event) => { if (event.target.closest?.("[data-find]")) palette(); });
addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key === "k") { event.preventDefault(); palette(); return; }
  if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented) return;
  if (event.target.matches?.("input, textarea, select") || document.querySelector("dialog[open]")) return;
  const key = event.key;
  if (isSilent() && !["Escape", "Enter", "?"].includes(key)) return;
  if (isGoing) {
    isGoing = false;
    document.querySelector(`.rail [data-key="${CSS.escape(key)}"]`)?.click();
    return;
  }
  const view = { t: "timeline", s: "steps", d: "data", i: "journal" }[key];
  if (key === "g") { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); }
  else if (key === "/") { event.preventDefault(); const bar = document.querySelector(".filters input:not([type=hidden])"); if (bar) bar.focus(); else palette(); }
  else if (key === "?") help();
  else if (key === "j") move(1);
  else if (key === "k") move(-1);
  else if (key === "Enter" && event.target.matches?.("tr[data-href]")) location.href = event.target.dataset.href;
  else if (key === "Escape") document.querySelector("[data-esc]")?.click();
  else if (key === ".") document.querySelector("#content .acts [data-dialog]")?.focus();
  else if (key === "c") document.querySelector("#content [data-copy]")?.click();
  else if (view) document.querySelector(`[data-view="${view}"]`)?.click();
});
export { open };
