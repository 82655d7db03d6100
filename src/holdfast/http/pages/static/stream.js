// One stream of pokes for all pages that are open in a browser. It has six connections to a server for all of them: with a
// stream for each page, the seventh would not even load. So this is a shared worker; where there is none, each page runs it.
const REST_MS = 50, LOST_MS = 20_000, WAIT_MS = 500, WAIT_MAX_MS = 15_000;
const STREAMS = 3, TOPICS = 50; // more namespaces than this, and more topics than a server takes, are left to the net
const pages = new Map(), streams = new Map();
export const url = import.meta.url;

async function* events(body) {
  let rest = "";
  for (const reader = body.pipeThrough(new TextDecoderStream()).getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n\n");
    rest = whole.pop();
    for (const one of whole) yield Object.fromEntries(one.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
  }
}

class Stream {
  topics = new Set();
  marks = new Map();
  isOpen = false;
  wait = WAIT_MS;

  constructor(namespace) { this.namespace = namespace; }

  listeners() { return [...pages].filter(([, wish]) => wish.namespace === this.namespace); }

  tell(words, topic) {
    for (const [say, wish] of this.listeners()) if (!topic || wish.topics.includes(topic)) say(words);
  }

  // Open it again if somebody wants more, and when nobody has wanted a part of it for a while.
  follow(isTidy = false) {
    const wanted = new Set([...new Set(this.listeners().flatMap(([, wish]) => wish.topics))].slice(0, TOPICS));
    if (!wanted.size) this.end();
    else if (![...wanted].every((one) => this.topics.has(one)) || (isTidy && wanted.size < this.topics.size)) {
      this.topics = wanted;
      this.later(REST_MS);
    }
  }

  later(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), ms);
  }

  end() {
    clearTimeout(this.timer);
    this.stop?.abort();
    this.stop = null;
    streams.delete(this.namespace);
  }

  async open() {
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    for (const one of this.marks.keys()) if (!this.topics.has(one)) this.marks.delete(one);
    try {
      const query = new URLSearchParams([...this.topics].map((one) => ["topic", one]));
      const answer = await fetch(`/v1/stream?${query}`, { headers: { "Holdfast-Namespace": this.namespace }, signal: stop.signal });
      if (answer.ok) {
        this.isOpen = true;
        this.tell({ isLive: true });
        for await (const { event, data } of events(answer.body)) this.heard(event, data);
      }
    } catch { /* it ended: the next one may not */ }
    if (stop !== this.stop) return; // another one has taken its place
    this.isOpen = false;
    this.tell({ isLive: false });
    this.later(this.wait * (0.7 + 0.6 * Math.random()));
    this.wait = Math.min(this.wait * 2, WAIT_MAX_MS);
  }

  // A stream that begins anew says all marks. Only those that are others than before are news.
  heard(event, data) {
    this.wait = WAIT_MS;
    if (event === "away") return this.tell({ isPoked: true });
    if (event !== "poke") return;
    const { topic, mark } = JSON.parse(data);
    if (this.marks.get(topic) === mark) return;
    this.marks.set(topic, mark);
    this.tell({ isPoked: true }, topic);
  }
}

// A page says every few seconds what it wants to hear about, and says null when nobody looks at it any more.
export function listener(say) {
  return (wish) => {
    const before = pages.get(say);
    if (wish) pages.set(say, { ...wish, at: Date.now() });
    else pages.delete(say);
    for (const [one, { at }] of pages) if (Date.now() - at > LOST_MS) pages.delete(one); // its tab has crashed
    if (wish && !streams.has(wish.namespace) && streams.size < STREAMS) streams.set(wish.namespace, new Stream(wish.namespace));
    for (const one of [...streams.values()]) one.follow(Boolean(before));
    const mine = wish && streams.get(wish.namespace);
    if (wish?.isBack && mine && !mine.isOpen) mine.later(REST_MS); // the server answers again
    if (!wish || before) return;
    say({ isLive: Boolean(mine?.isOpen) });
    // What has changed between the page and now was said to others.
    if (wish.topics.some((one) => mine?.marks.has(one))) say({ isPoked: true });
  };
}

if (globalThis.SharedWorkerGlobalScope) {
  addEventListener("connect", ({ ports: [port] }) => {
    const wish = listener((words) => port.postMessage(words));
    port.onmessage = ({ data }) => wish(data);
  });
}
