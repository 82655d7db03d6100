// Keeps a page true: a poke says that something has changed, and the page is fetched and morphed. Times tick here.
import { span, clock } from "./words.js";

const policy = window.trustedTypes?.createPolicy("htmx", { createHTML: (text) => text, createScript: () => "" }) ?? { createHTML: (text) => text };
htmx.registerExtension("trusted", { init: (api) => api.initSecurity(policy) });

const content = () => document.getElementById("content");
const since = (at) => (Date.now() + offset - Date.parse(at)) / 1000;
let offset = 0, seen = Date.now(), touched = 0, awayAt = 0, isLive = false, busy = false, again = false, timer = 0;

function learn() {
  const now = content()?.dataset.now;
  if (now) { offset = Date.parse(now) - Date.now(); seen = Date.now(); }
}

const say = (node, words) => { if (node.textContent !== words) node.textContent = words; };

export function tick() {
  for (const one of document.querySelectorAll("time[data-ago], time[data-since], time[data-in], time[data-clock]")) {
    const at = one.getAttribute("datetime");
    if ("ago" in one.dataset) say(one, `${span(since(at))} ago`);
    else if ("since" in one.dataset) say(one, span(since(at)));
    else if ("in" in one.dataset) say(one, since(at) < 0 ? span(-since(at)) : "now");
    else say(one, clock(at));
  }
  const pulse = document.getElementById("pulse");
  if (pulse) {
    pulse.className = awayAt ? "fail" : isLive ? "ok" : "idle";
    say(pulse.lastElementChild, awayAt ? `Away since ${span((Date.now() - awayAt) / 1000)}` : isLive ? "Live" : `As of ${clock(new Date(seen + offset).toISOString())}`);
  }
  banner();
}

function banner() {
  const place = document.getElementById("away"), main = content();
  if (!place) return;
  main.classList.toggle("is-away", Boolean(awayAt));
  for (const one of main.querySelectorAll(".panel, .acts, .moves, .tl")) one.inert = Boolean(awayAt);
  if (!awayAt) return place.replaceChildren();
  if (!place.firstChild) {
    const strong = document.createElement("strong"), rest = document.createElement("span");
    place.append(strong, rest);
  }
  say(place.firstChild, `The ${awayWhat} cannot be reached since ${span((Date.now() - awayAt) / 1000)}. `);
  say(place.lastChild, `What you see is from ${clock(new Date(seen + offset).toISOString())}, and nothing can be changed. Runs go on where they are when it is back; this page tries again by itself.`);
}

let awayWhat = "server";
function away(what) {
  awayWhat = what;
  awayAt ||= Date.now();
  clearTimeout(timer);
  timer = setTimeout(refresh, 3000);
  tick();
}

// Rows keep their place: while somebody looks at the list, new ones gather behind a button.
function withoutNew(text) {
  const doc = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
  const fresh = [...doc.querySelectorAll("tr[id]")].filter((row) => !document.getElementById(row.id));
  const button = doc.querySelector("[data-new]");
  if (!fresh.length || !button) return text;
  for (const row of fresh) row.remove();
  button.hidden = false;
  button.textContent = `${fresh.length} new`;
  return doc.documentElement.outerHTML;
}

const isCalm = () => scrollY < 40 && Date.now() - touched > 3000;

export async function refresh({ whole = false } = {}) {
  if (!document.getElementById("pulse")) return; // a page outside of the frame
  if (document.hidden || document.querySelector("dialog[open] form")) { again = true; return; }
  if (busy) { again = true; return; }
  busy = true;
  again = false;
  const main = content();
  const line = setTimeout(() => main.classList.add("is-slow"), 400);
  try {
    const answer = await fetch(location.href, { headers: { "HX-Request": "live", "HX-Current-URL": location.href } });
    const to = answer.headers.get("HX-Redirect");
    if (to) { location.href = to; return; }
    if (answer.status >= 500) return away(answer.status === 503 ? "store" : "server");
    let text = await answer.text();
    if (!whole && !isCalm()) text = withoutNew(text);
    await htmx.swap({ sourceElement: main, target: main, select: "#content", swap: "outerMorph", text, transition: false });
    const before = awayAt;
    awayAt = 0;
    learn();
    tick();
    if (before) listen();
  } catch (wrong) {
    if (wrong instanceof TypeError) away("server");
    else throw wrong;
  } finally {
    clearTimeout(line);
    content()?.classList.remove("is-slow");
    busy = false;
    if (again && !awayAt) setTimeout(refresh, 250);
  }
}

addEventListener("poke", () => { isLive = true; refresh(); });
for (const name of ["htmx:sse:after:connection"]) addEventListener(name, () => { isLive = true; tick(); });
for (const name of ["htmx:sse:error", "htmx:sse:close"]) addEventListener(name, () => { isLive = false; if (!document.hidden) refresh(); });
for (const name of ["pointermove", "keydown", "wheel"]) addEventListener(name, () => { touched = Date.now(); }, { passive: true });
addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
addEventListener("click", (event) => { if (event.target.closest?.("[data-new]")) refresh({ whole: true }); });

// The stream begins when somebody is there to hear that it is open: before that, nobody would know.
function listen() {
  const stream = document.getElementById("stream");
  if (stream) htmx.trigger(stream, "again");
}

learn();
tick();
if (document.readyState === "complete") listen();
else addEventListener("load", listen);
setInterval(tick, 1000);
// The net below the stream, and the only way for pages without a topic. It also notices a store that has gone.
setInterval(refresh, Number(content()?.dataset.every ?? 15) * 1000);
