// Zoom, pan and keys of the timeline. Everything in a track is in per cent of a nested svg: moving that one moves all.
import { isSilent } from "./keys.js";

const tl = () => document.getElementById("timeline");
let from = 0, to = 1, timer = 0;

// The address says what is in the window, for whoever gets it.
const said = /^#window=([\d.]+)-([\d.]+)$/.exec(location.hash);
if (said && Number(said[1]) < Number(said[2])) pan(Number(said[1]), Math.min(1, Number(said[2]) - Number(said[1])));

function draw() {
  const wide = to - from;
  clearTimeout(timer);
  timer = setTimeout(() => {
    const window = wide < 1 ? `#window=${from.toFixed(4)}-${to.toFixed(4)}` : "";
    if (window !== location.hash) history.replaceState(history.state, "", location.pathname + location.search + window);
  }, 400);
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
  const box = tl()?.querySelector(".tl-axis .tl-track").getBoundingClientRect();
  if (!box) return 0;
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

// Dragging a row moves the window, dragging along the axis chooses one. What was dragged was not clicked.
let drag = null, moved = false;
addEventListener("pointerdown", (event) => {
  const track = event.target.closest?.("#timeline .tl-track");
  moved = false;
  if (event.button || !track) return;
  drag = { x: event.clientX, at: place(event), from, wide: track.clientWidth, isAxis: Boolean(track.closest(".tl-axis")) };
});
addEventListener("pointermove", (event) => {
  if (!drag || (!moved && Math.abs(event.clientX - drag.x) < 4)) return;
  moved = drag.isAxis || to - from < 1;
  if (drag.isAxis) choose(Math.min(drag.at, place(event)), Math.abs(drag.at - place(event)));
  else if (moved) pan(drag.from - ((event.clientX - drag.x) / drag.wide) * (to - from));
});
addEventListener("pointerup", (event) => {
  const wide = to - from, [first, last] = [drag?.at ?? 0, place(event)].sort((one, two) => one - two);
  if (drag?.isAxis) {
    choose(0, 0);
    if (moved && last - first > 0.01) pan(from + wide * first, wide * (last - first));
  }
  drag = null;
});
addEventListener("dblclick", (event) => { if (event.target.closest?.("#timeline .tl-track")) MOVES.fit(); });

function choose(start, wide) {
  const band = tl().querySelector(".tl-grid > rect");
  band.setAttribute("x", `${start * 100}%`);
  band.setAttribute("width", `${wide * 100}%`);
}

// Pointing at an undo lights up what it undoes, and the other way round.
addEventListener("pointerover", (event) => {
  for (const one of document.querySelectorAll(".tl-row.pair")) one.classList.remove("pair");
  const row = event.target.closest?.(".tl-row[data-pair]");
  if (row) for (const one of [row, document.getElementById(row.dataset.pair)]) one?.classList.add("pair");
});

addEventListener("click", (event) => {
  const row = event.target.closest?.(".tl-row[data-href]");
  if (row && !event.target.closest("a") && !moved) location.href = row.dataset.href;
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
