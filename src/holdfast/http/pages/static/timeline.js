// Zoom, pan and keys of the timeline. Everything in a track is in per cent of a nested svg: moving that one moves all.
import { isSilent } from "./keys.js";

const tl = () => document.getElementById("timeline");
let from = 0, to = 1;

function draw() {
  const wide = to - from;
  for (const one of document.querySelectorAll("#timeline svg.z")) {
    one.setAttribute("x", `${(-from / wide) * 100}%`);
    one.setAttribute("width", `${100 / wide}%`);
  }
}

function zoom(by, at = 0.5) {
  const middle = from + (to - from) * at, wide = Math.min(1, Math.max(0.002, (to - from) * by));
  pan(middle - wide * at, wide);
}

function pan(start, wide = to - from) {
  from = Math.min(Math.max(0, start), 1 - wide);
  to = from + wide;
  draw();
}

const place = (event) => {
  const box = tl().querySelector(".tl-axis .tl-track").getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
};

const MOVES = { in: () => zoom(0.6), out: () => zoom(1 / 0.6), fit: () => { from = 0; to = 1; draw(); } };
addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-zoom]");
  if (button) MOVES[button.dataset.zoom]();
});
addEventListener("wheel", (event) => {
  if (!(event.metaKey || event.ctrlKey) || !event.target.closest?.("#timeline")) return;
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, place(event));
}, { passive: false });

let drag = null;
addEventListener("pointerdown", (event) => {
  if (event.button || !event.target.closest?.("#timeline .tl-track")) return;
  drag = { x: event.clientX, from, wide: tl().querySelector(".tl-axis .tl-track").clientWidth };
});
addEventListener("pointermove", (event) => {
  if (!drag || to - from >= 1 || Math.abs(event.clientX - drag.x) < 4) return;
  drag.moved = true;
  pan(drag.from - ((event.clientX - drag.x) / drag.wide) * (to - from));
});
addEventListener("pointerup", () => { drag = null; });
addEventListener("dblclick", (event) => { if (event.target.closest?.("#timeline .tl-track")) MOVES.fit(); });

// Pointing at an undo lights up what it undoes, and the other way round.
addEventListener("pointerover", (event) => {
  for (const one of document.querySelectorAll(".tl-row.pair")) one.classList.remove("pair");
  const row = event.target.closest?.(".tl-row[data-pair]");
  if (row) for (const one of [row, document.getElementById(row.dataset.pair)]) one?.classList.add("pair");
});

addEventListener("click", (event) => {
  const row = event.target.closest?.(".tl-row[data-href]");
  if (row && !event.target.closest("a") && !drag?.moved) location.href = row.dataset.href;
});

function walk(by) {
  const rows = [...document.querySelectorAll(".tl-row[tabindex]")], at = rows.indexOf(document.activeElement.closest?.(".tl-row"));
  const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
  if (next) { next.tabIndex = 0; next.focus(); }
}

const bad = () => [...document.querySelectorAll(".tl-row")].filter((row) => row.querySelector(".tl-name .g.fail"));
addEventListener("keydown", (event) => {
  if (!tl() || event.metaKey || event.ctrlKey || event.target.matches?.("input, textarea, select") || document.querySelector("dialog[open]")) return;
  const inside = event.target.closest?.("#timeline");
  const moves = {
    "+": MOVES.in, "=": MOVES.in, "-": MOVES.out, "0": MOVES.fit,
    e: () => document.activeElement.closest?.(".tl-row[aria-expanded]")?.querySelector("a")?.click(),
    f: () => document.querySelector("[data-fold]")?.click(),
    u: () => document.getElementById("undo-fold")?.scrollIntoView({ block: "center" }),
    "]": () => { const all = bad(), at = all.indexOf(document.activeElement); const one = all[at + 1] ?? all[0]; if (one) { one.tabIndex = 0; one.focus(); } },
    "[": () => { const all = bad(), at = all.indexOf(document.activeElement); const one = all.at(at - 1); if (one) { one.tabIndex = 0; one.focus(); } },
  };
  if (inside) Object.assign(moves, { ArrowDown: () => walk(1), ArrowUp: () => walk(-1), Enter: () => { const row = event.target.closest("[data-href]"); if (row) location.href = row.dataset.href; } });
  if (to - from < 1 || inside) Object.assign(moves, { ArrowLeft: () => pan(from - (to - from) / 5), ArrowRight: () => pan(from + (to - from) / 5) });
  const move = isSilent() && event.key.length === 1 ? null : moves[event.key];
  if (move) { event.preventDefault(); move(); }
});
addEventListener("htmx:after:swap", draw);
