// Rows that are selected for an act on all of them: by pointer, up to here with shift, and by keys.
import { isSilent } from "./keys.js";

const boxes = () => [...document.querySelectorAll("#content .pick input[name=runs]")];
let last = null;

function count() {
  const all = boxes(), chosen = all.filter((one) => one.checked).length;
  const words = document.getElementById("picked"), whole = document.querySelector("[data-pick-all]");
  if (words) words.textContent = `${chosen} selected`;
  if (whole) { whole.checked = chosen > 0 && chosen === all.length; whole.indeterminate = chosen > 0 && chosen < all.length; }
}

// With shift: everything between the last one and this one becomes as this one is.
function pick(box, isRange) {
  const all = boxes(), from = all.findIndex((one) => one.id === last), to = all.indexOf(box);
  if (isRange && from >= 0) for (const one of all.slice(Math.min(from, to), Math.max(from, to) + 1)) one.checked = box.checked;
  last = box.id;
  count();
}

const every = (isChosen) => { for (const one of boxes()) one.checked = isChosen; count(); };

addEventListener("click", (event) => {
  const { target } = event;
  if (target.matches?.(".pick input[name=runs]")) pick(target, event.shiftKey);
  else if (target.matches?.("[data-pick-all]")) every(target.checked);
  else if (target.closest?.("[data-pick-none]")) every(false);
});
addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.target.matches?.("input:not([type=checkbox]), textarea, select") || document.querySelector("dialog[open]")) return;
  if ((event.metaKey || event.ctrlKey) && event.key === "a" && boxes().length) { event.preventDefault(); every(true); }
  if (event.metaKey || event.ctrlKey || event.altKey || event.key.toLowerCase() !== "x" || isSilent()) return;
  const box = event.target.closest?.("tr")?.querySelector(".pick input[name=runs]");
  if (!box) return;
  event.preventDefault();
  box.checked = !box.checked;
  pick(box, event.shiftKey);
});
addEventListener("htmx:after:swap", count);
addEventListener("pageshow", count);
count();
