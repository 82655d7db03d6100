// Keeps a page true: a poke says that something has changed, and the page is fetched and morphed. Times tick here.
import { ago, span, clock, whole } from "./words.js";
import { listener, url as script } from "./stream.js";

const rules = { createHTML: (text) => text, createScript: () => "", createScriptURL: (text) => (text === script ? text : "") };
const policy = window.trustedTypes?.createPolicy("htmx", rules) ?? rules;
htmx.registerExtension("trusted", { init: (api) => api.initSecurity(policy) });

const REST_MAX_MS = 5000;
const content = () => document.getElementById("content");
const since = (at) => (Date.now() + offset - Date.parse(at)) / 1000;
let offset = 0, seen = Date.now(), touched = 0, awayAt = 0, isLive = false, isGone = false, busy = false, again = false, timer = 0, restUntil = 0;

function learn() {
  const now = content()?.dataset.now;
  if (now) { offset = Date.parse(now) - Date.now(); seen = Date.now(); }
}

const say = (node, words) => { if (node.textContent !== words) node.textContent = words; };

export function tick() {
  for (const one of document.querySelectorAll("time[data-ago], time[data-since], time[data-in], time[data-clock]")) {
    const at = one.getAttribute("datetime");
    if ("ago" in one.dataset) say(one, ago(since(at)));
    else if ("since" in one.dataset) say(one, span(since(at)));
    else if ("in" in one.dataset) say(one, since(at) < 0 ? span(-since(at)) : "now");
    else say(one, clock(at));
  }
  const pulse = document.getElementById("pulse");
  if (pulse) {
    pulse.className = awayAt ? "fail" : isLive && !isGone ? "ok" : "idle";
    say(pulse.lastElementChild, awayAt ? `Away for ${whole((Date.now() - awayAt) / 1000)}` : isLive && !isGone ? "Live" : `As of ${clock(new Date(seen + offset).toISOString())}`);
  }
  banner();
}

function banner() {
  const place = document.getElementById("away"), main = content();
  if (!place) return;
  const isOld = Boolean(awayAt) || isGone;
  main.classList.toggle("is-away", isOld);
  for (const one of main.querySelectorAll(".panel, .acts, .moves, .tl, .bulk")) one.inert = isOld;
  if (!isOld) return place.replaceChildren();
  if (!place.firstChild) {
    const link = Object.assign(document.createElement("a"), { href: "/signin", target: "_blank", textContent: "Sign in", className: "btn tiny" });
    place.append(document.createElement("strong"), document.createElement("span"), link);
  }
  const from = clock(new Date(seen + offset).toISOString());
  const isOut = awayWhat === "session" && !isGone, [strong, rest, link] = place.children;
  link.hidden = !isOut;
  say(strong, isOut ? "You are signed out. " : isGone ? "What this page shows is no longer in the store. " : `The ${awayWhat} cannot be reached, for ${whole((Date.now() - awayAt) / 1000)} now. `);
  say(rest, isOut ? "What you typed is kept: sign in in another tab, and go on here. " : isGone
    ? `What ended long ago is pruned, or somebody has removed it. What you see is from ${from}, and nothing can be done with it.`
    : `What you see is from ${from}, and nothing can be changed. Runs go on where they are when it is back; this page tries again by itself.`);
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

// Something was typed into a form, and not sent.
const isTyped = () => [...document.querySelectorAll("form[method=post] :is(input:not([type=hidden]), textarea)")].some((one) => one.value !== one.defaultValue);
const isCalm = () => scrollY < 40 && Date.now() - touched > 3000;

// Fetches the page, and then leaves the server in peace for three times as long as that took. So the pages of one browser,
// however many there are and however often they are poked, keep a server busy for about a quarter of the time at most.
export async function refresh({ whole = false } = {}) {
  if (!document.getElementById("pulse") || isGone) return; // a page outside of the frame, or without anything to fetch
  if (document.querySelector("[data-once]")) return; // a secret, which no second look would show
  if (document.hidden || busy || document.querySelector("dialog[open] form")) { again = true; return; }
  const early = restUntil - Date.now();
  if (early > 0 && !whole) {
    clearTimeout(timer);
    timer = setTimeout(refresh, early);
    return;
  }
  busy = true;
  again = false;
  const begun = Date.now();
  const main = content();
  const line = setTimeout(() => main.classList.add("is-slow"), 400);
  try {
    const answer = await fetch(location.href, { headers: { "HX-Request": "live", "HX-Current-URL": location.href } });
    const to = answer.headers.get("HX-Redirect");
    if (to && isTyped()) return away("session");
    if (to) { location.href = to; return; }
    if (answer.status >= 500) return away(answer.status === 503 ? "store" : "server");
    const problem = answer.headers.get("Holdfast-Problem");
    if (problem === "throttled") return; // what is shown is still good, and the net asks again
    if (problem === "unknown") { isGone = true; wish(null); return tick(); }
    let text = await answer.text();
    if (!whole && !isCalm()) text = withoutNew(text);
    await htmx.swap({ sourceElement: main, target: main, select: "#content", swap: "outerMorph", text, transition: false });
    const wasAway = awayAt;
    awayAt = 0;
    learn();
    tick();
    if (wasAway) listen({ isBack: true });
  } catch (wrong) {
    if (wrong instanceof TypeError) away("server");
    else throw wrong;
  } finally {
    clearTimeout(line);
    content()?.classList.remove("is-slow");
    busy = false;
    restUntil = Date.now() + Math.min(3 * (Date.now() - begun), REST_MAX_MS);
    if (again && !awayAt) refresh();
  }
}

for (const name of ["pointermove", "keydown", "wheel"]) addEventListener(name, () => { touched = Date.now(); }, { passive: true });
for (const name of ["visibilitychange", "pageshow"]) addEventListener(name, () => { listen(); if (!document.hidden && again) refresh(); });
addEventListener("pagehide", () => { wish(null); again = true; });
addEventListener("close", () => { if (again) refresh(); }, { capture: true }); // a dialog: what changed meanwhile was not fetched
addEventListener("click", (event) => { if (event.target.closest?.("[data-new]")) refresh({ whole: true }); });

function heard(words) {
  if (words.isPoked) refresh();
  if (!("isLive" in words)) return;
  const wasLive = isLive;
  isLive = words.isLive;
  if (wasLive && !isLive) refresh(); // is it the stream alone?
  tick();
}

let wish = listener(heard);
if (window.SharedWorker) {
  const shared = new SharedWorker(policy.createScriptURL(script), { type: "module" });
  shared.port.onmessage = ({ data }) => heard(data);
  shared.onerror = () => { wish = listener(heard); listen(); };
  wish = (words) => shared.port.postMessage(words);
}

// A page that nobody looks at hears nothing, and costs nothing. It is fetched once when somebody comes back.
function listen({ isBack = false } = {}) {
  const { topics, namespace } = content()?.dataset ?? {};
  if (document.hidden) again = true;
  if (topics && !isGone) wish(document.hidden ? null : { namespace, isBack, topics: new URLSearchParams(topics).getAll("topic") });
}

learn();
tick();
listen();
setInterval(tick, 1000);
setInterval(listen, 5000);
// The net below the stream, and the only way for pages without a topic. It also notices a store that has gone.
setInterval(refresh, Number(content()?.dataset.every ?? 15) * 1000);
