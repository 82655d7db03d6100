// A whole agent for Holdfast, with nothing but Node.js. It executes billing.receipt, up to four at once.
//
//   HOLDFAST_SERVER=https://holdfast.example HOLDFAST_TOKEN=hf_agent_… node agent.mjs
import { appendFileSync } from "node:fs";
import { hostname } from "node:os";

const PLACES = 4;
const steps = {
  // key is the same for every attempt of a step: pass it on to whoever must not do the same thing twice.
  "billing.receipt": async ({ charged, line }, { key }) => {
    if (process.env.EFFECTS) appendFileSync(process.env.EFFECTS, `${key}\n`);
    await pause(Number(process.env.RECEIPT_S ?? 0) * 1000);
    return `${line + 1}: ${charged.charge} paid ${charged.cents}`;
  },
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const soon = () => pause(Math.random() * 1000); // not all agents at once, after a restart of the server

async function post(path, body, seconds = 15) {
  const headers = { "Content-Type": "application/json" };
  if (process.env.HOLDFAST_TOKEN) headers.Authorization = `Bearer ${process.env.HOLDFAST_TOKEN}`;
  const signal = AbortSignal.timeout(seconds * 1000);
  const url = `${process.env.HOLDFAST_SERVER}/v1/agents${path}`;
  const answer = await fetch(url, { method: "POST", headers, signal, body: JSON.stringify(body) });
  if (answer.ok) return answer.json();
  throw Object.assign(new Error(await answer.text()), { status: answer.status });
}

async function work() {
  const groups = [{ name: "g", steps: Object.keys(steps), places: PLACES }];
  const { agent, beat_s } = await post("", { protocol: [1], host: hostname(), pid: process.pid, groups });
  const has = new Map(); // what this agent executes, or has not reported yet: [run, n, fence] by its secret
  let turn = 0, took = 0, gone = false;
  const beating = setInterval(() => has.size && post(`/${agent}/beat`, { has: [...has.values()] }).catch(() => {}), beat_s * 300);

  async function execute(step) {
    const { run, n, fence, secret } = step;
    let report;
    try {
      report = { verb: "succeed", output: (await steps[step.name](step.input, step)) ?? null };
    } catch (error) { // the server decides by the step's policy whether it is tried again
      report = { verb: "fail", error: { type: error.name, message: String(error.message) } };
    }
    for (;;) { // until there is an answer: it counts once, because the fence decides
      const answer = await post(`/${agent}/report`, { reports: [{ run, n, fence, secret, ...report }] }).catch((e) => e);
      if (!(answer instanceof Error) || answer.status < 500) break;
      await soon();
    }
    has.delete(secret);
  }

  while (!gone) {
    if (has.size >= PLACES) { await pause(5); continue; }
    turn += 1; // after a claim without steps or answer, say what this agent has: the rest is handed back
    const lost = took < turn - 1 ? { has: [...has.values()] } : {};
    try {
      const answer = await post(`/${agent}/claim`, { turn, free: { g: PLACES - has.size }, wait_s: 20, ...lost }, 35);
      if (answer.steps.length) took = turn;
      for (const step of answer.steps) { has.set(step.secret, [step.run, step.n, step.fence]); execute(step); }
      if (answer.leaving) await soon();
    } catch (error) { gone = error.status === 410; await soon(); }
  }
  clearInterval(beating);
}

for (;;) { await work().catch((error) => console.error(String(error))); await soon(); }
