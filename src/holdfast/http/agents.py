"""The agents' door. Agents pull: an agent that does not ask gets nothing. Turns make a lost reply harmless, fences decide whose
report counts, and a stream can only shorten a lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from typing import Any

import msgspec

from holdfast import policy
from holdfast.access import Act, Identity, Kind
from holdfast.access.signed_texts import KEY_BYTES
from holdfast.access.tokens import SECRET_BYTES
from holdfast.codec import describe_error
from holdfast.durations import STEP, step_name
from holdfast.errors import StepFailed, StoreError
from holdfast.http.call import Call, Given
from holdfast.http.hall import Waiter, Wanted
from holdfast.http.refusals import Refusal
from holdfast.model import (
    DEFAULT_NAMESPACE,
    REQUEST_PREFIX,
    Ending,
    Failure,
    HoldScope,
    Outcome,
    StepRow,
    StepState,
    TwinState,
    effect_key,
)
from holdfast.namespaces import BETWEEN, bare, namespace_of, shown, shown_row, stored
from holdfast.policy import Retry
from holdfast.store.answers import Answer, ClaimedStep, Observation, ShutGates
from holdfast.store.bell import Bell
from holdfast.store.limits import LimitLoad
from holdfast.store.operations import HandBack, QuarantineStep, RetryStep, Save, StepOp
from holdfast.store.remotes import NewTurn, TakenStep
from holdfast.store.twins import outran_by
from holdfast.wire.agents import (
    PROTOCOLS,
    Answers,
    Beat,
    Beaten,
    Claim,
    Claimed,
    Claims,
    Gates,
    Left,
    Register,
    Registered,
    Report,
    TwinAct,
    TwinSeen,
    is_secret,
    secret_of,
)
from holdfast.wire.agents import given as payload

LEASE_S, BEAT_S, WAIT_MAX_S = 30.0, 10.0, 20.0
RENEW_EVERY_S = 1 / 6
"""A claim renews the lease, but only if the last renewal at this server is older than this share of the lease."""
REFUSED = "refused"


class KnownAgent(msgspec.Struct):
    """An agent, as this server remembers it. The store has all of it, too."""

    id: str
    token: str
    secret: bytes
    wanted: Wanted
    namespace: str
    """The namespace that it works in. On the wire, names are bare, and the ids of runs are those of the store."""
    lease_s: float
    turn: int = 0
    """The newest claim that is known to have taken something."""
    renewed_at: float = float("-inf")


# --- who asks -----------------------------------------------------------------------------------------------------


async def _agent(call: Call) -> KnownAgent:
    """Return the agent that the path names. An agent of another token is refused like one that has left."""
    doorway, name = call.server.doorway, call.id("agent")
    known = doorway.agents.get(name)
    if known is None:
        row = await call.server.hf.store.remotes.remote(name)
        if row is None:
            raise _gone()
        offers = json.loads(row.offers)
        known = KnownAgent(
            name,
            row.token,
            row.secret,
            _wanted(offers, call.who),
            str(offers["namespaces"][0]),
            float(offers["lease_s"]),
            row.turn,
        )
        doorway.agents[name] = known
    if known.token != _token(call.who):
        raise _gone()
    return known


def _gone() -> Refusal:
    return Refusal("gone", "this agent has left, or counts as gone: register again")


def _token(who: Identity) -> str:
    return "" if who.kind is Kind.LOCAL else who.id


def _own(namespace: str, name: str, place: str) -> str:
    """Return the stored name of what an agent names. A bare name has no `//`: in `default`, it would be a name in
    another namespace."""
    name = shown(namespace, name)
    if BETWEEN in name:
        raise Refusal(
            "invalid",
            f"{name[:100]!r} has // in it, which stands between a namespace and a name",
            place=place,
        )
    return stored(namespace, name)


def _wanted(offers: dict[str, Any], who: Identity) -> Wanted:
    """Return what an agent may claim, by stored names: what it offers, as far as its token allows it."""
    groups = tuple(
        (str(group["name"]), frozenset(step for step in group["steps"] if who.may_work(bare(step))))
        for group in offers["groups"]
    )
    steps = frozenset(step for _, those in groups for step in those)
    labels = frozenset(label for label in offers["labels"] if who.has_label(label))
    return Wanted(groups, labels, steps.intersection(offers.get("hedged", ())))


async def register(call: Call) -> Given:
    given: Register = call.body
    spoken = PROTOCOLS & set(given.protocol)
    if not spoken:
        raise Refusal("upgrade", f"this server speaks the protocols {sorted(PROTOCOLS)}", place="/protocol")
    hf, who = call.server.hf, call.who
    if not any(who.may_work(step) for group in given.groups for step in group.steps):
        raise Refusal("forbidden", "this token may claim none of these steps")
    agent = given.id or hf.environment.new_id()
    lease_s = min(given.lease_s or LEASE_S, LEASE_S)
    namespace = who.namespace or DEFAULT_NAMESPACE
    offers = {
        **_stored_offers(given, namespace),
        "labels": sorted(set(given.labels)),
        "namespaces": [namespace],
        "lease_s": lease_s,
        "remote": True,
    }
    text = json.dumps(offers)
    places = sum(group.places for group in given.groups)
    columns = (given.host, given.pid, "agent", text, min(places, 2_147_483_647), lease_s)
    secret = await hf.store.remotes.register(agent, columns, _token(who), hf.environment.secret(SECRET_BYTES))
    if secret is None:
        raise Refusal(
            "gone", "this id belongs to an agent that left, or to another token: register with a new one"
        )
    call.server.doorway.agents[agent] = KnownAgent(
        agent,
        _token(who),
        secret,
        _wanted(offers, who),
        namespace,
        lease_s,
        renewed_at=hf.environment.monotonic(),
    )
    now = await hf.store.now()
    call.server.doorway.learn(hf.environment.monotonic(), now)
    made = Registered(
        agent,
        max(spoken),
        lease_s,
        lease_s * BEAT_S / LEASE_S,
        WAIT_MAX_S,
        hf.config.payload_max_bytes,
        now,
    )
    return Given(made, 201)


def _stored_offers(given: Register, namespace: str) -> dict[str, Any]:
    """Return what an agent says about itself, with stored names."""
    groups = [
        {
            "name": group.name,
            "steps": [_own(namespace, step, f"/groups/{number}/steps") for step in group.steps],
            "places": group.places,
        }
        for number, group in enumerate(given.groups)
    ]
    about = given.about
    if any(number >= len(about.sources) for number in about.step_sources):
        raise Refusal("invalid", "there is no source with this number", place="/about/step_sources")
    return {
        **msgspec.to_builtins(about),
        "steps": [_own(namespace, name, "/about/steps") for name in about.steps]
        or sorted({stored(namespace, step) for group in given.groups for step in group.steps}),
        "hedged": [_own(namespace, name, "/about/hedged") for name in about.hedged],
        "groups": groups,
    }


# --- claiming -----------------------------------------------------------------------------------------------------


async def claim(call: Call) -> Given:
    given: Claim = call.body
    agent, server = await _agent(call), call.server
    now = server.hf.environment.monotonic()
    if given.has is not None or now - agent.renewed_at > agent.lease_s * RENEW_EVERY_S:
        begun = await server.doorway.turns.begin(
            NewTurn(agent.id, given.turn, agent.lease_s, given.has, given.twins)
        )
        if not begun.is_member:
            server.doorway.agents.pop(agent.id, None)
            raise _gone()
        agent.renewed_at = now
        if begun.is_overtaken:
            return Given(await _claims(call, given, agent, [], is_overtaken=True))
        if begun.handed_back:
            server.hf.caller.ring(Bell.STEPS)
    if (
        given.has is None and given.turn <= agent.turn
    ):  # the request was sent twice, and the other one was answered
        return Given(await _claims(call, given, agent, [], is_overtaken=True))
    waiter = Waiter(agent.id, given.turn, agent.wanted, given.free, given.suspects)
    taken: list[TakenStep] = []
    if not server.is_leaving:
        taken = await server.doorway.hall.claim(waiter)
        if not taken and not waiter.is_overtaken and given.wait_s > 0:
            async with call.while_open(Act.WORK) as left:
                taken = await server.doorway.hall.wait(waiter, min(given.wait_s, WAIT_MAX_S), left)
    if taken:
        agent.turn = max(agent.turn, given.turn)
    return Given(await _claims(call, given, agent, taken, is_overtaken=waiter.is_overtaken))


async def _claims(
    call: Call, given: Claim, agent: KnownAgent, taken: list[TakenStep], *, is_overtaken: bool
) -> Claims:
    hf = call.server.hf
    traces = (
        await hf.store.agents.run_traces([one.step.run_id for one in taken])
        if hf.config.traces and taken
        else {}
    )
    return Claims(
        turn=given.turn,
        now=await call.server.doorway.now(),
        steps=[
            _claimed(agent, one, await _address(call, one.step), traces.get(one.step.run_id)) for one in taken
        ],
        gates=await _gates(call, agent, given.gates) if given.gates else None,
        overtaken=is_overtaken,
        leaving=call.server.is_leaving,
    )


async def _address(call: Call, step: ClaimedStep) -> str | None:
    """Return where another system posts the result, if this is the request for a callback."""
    if not step.key.startswith(REQUEST_PREFIX):
        return None
    hf = call.server.hf
    return await hf.store.callbacks.address(
        step.run_id, step.n, step.issued_at, hf.environment.secret(KEY_BYTES)
    )


def _claimed(agent: KnownAgent, taken: TakenStep, callback: str | None, trace: str | None) -> Claimed:
    step = taken.step
    made = Claimed(
        run=step.run_id,
        n=step.n,
        fence=step.fence,
        secret=secret_of(agent.secret, step.run_id, step.n, step.fence, twin=taken.is_twin),
        name=shown(agent.namespace, step.name),
        key=step.effect or effect_key(step.run_id, step.key),
        step=step.key,
        input=msgspec.Raw(step.input),
        attempt=step.attempt,
        attempts_max=step.attempts_max,
        losses=step.losses,
        excused=step.excused,
        timeouts=step.timeouts,
        throttled=step.throttled,
        timeout_s=step.timeout_s,
        issued_at=step.issued_at,
        retry=step.retry,
        error=step.error,
        probe=taken.probe,
        callback=callback,
        trace=trace,
        twin=taken.is_twin,
        adapts=list(step.adapts),
    )
    if step.checkpoint is not None:
        made.checkpoint = msgspec.Raw(step.checkpoint)
    return made


async def _gates(call: Call, agent: KnownAgent, known: str) -> Gates | None:
    """Return what keeps steps of the agent's namespace from beginning, if the agent does not know it yet."""
    found = _seen(await call.server.doorway.gates(call.server.hf), agent.namespace)
    mark = _mark(found)
    if mark == known:
        return None
    return Gates(mark, msgspec.to_builtins(found.breakers), msgspec.to_builtins(found.holds))


def _seen(gates: ShutGates, namespace: str) -> ShutGates:
    """Return the gates of a namespace, with bare names."""
    return ShutGates(
        [shown_row(namespace, one) for one in gates.breakers if namespace_of(one.name) == namespace],
        [
            shown_row(namespace, one)
            for one in gates.holds
            if one.scope is HoldScope.ALL
            or (one.value if one.scope is HoldScope.NAMESPACE else namespace_of(one.value)) == namespace
        ],
    )


def _mark(found: ShutGates) -> str:
    return hashlib.blake2b(msgspec.json.encode(found), digest_size=9).hexdigest()


# --- reporting ----------------------------------------------------------------------------------------------------


async def report(call: Call) -> Given:
    """Record what became of attempts. Reports of many agents share a commit."""
    agent, hf = await _agent(call), call.server.hf
    given: list[Report] = call.body.reports
    waiting: list[tuple[int, StepOp, asyncio.Future[Any]]] = []
    answers = [REFUSED] * len(given)
    now, writer = await call.server.doorway.now(), hf.caller.writer
    for number, one in enumerate(given):
        if not is_secret(one.secret, agent.secret, one.run, one.n, one.fence, twin=one.twin):
            continue
        if one.twin:
            answers[number] = await _end_twin(call, agent, one)
            continue
        op = await _operation(call, agent, one, now)
        if op is not None:
            waiting.append((number, op, writer.write(op)))
    bells: set[Bell] = set()
    for number, op, answered in waiting:
        answer = await answered
        if answer is Answer.FENCED:
            # No claim fits this report. An earlier report of this agent may have counted already.
            answer = await hf.store.batches.refuse(agent.id, op)
        answers[number] = answer
        if answer is Answer.ACCEPTED:
            if call.server.doorway.hall.is_walking and type(op) is not Save:
                bells.add(Bell.STEPS)  # it may have freed a slot under a limit
            if type(op) is Outcome:
                bells.add(Bell.OUTCOMES)
            elif type(op) is HandBack or (type(op) is RetryStep and op.delay_s <= 0):
                bells.add(Bell.STEPS)
    for bell in sorted(bells):
        hf.caller.ring(bell)
    return Given(Answers(answers))


async def _end_twin(call: Call, agent: KnownAgent, one: Report) -> Answer:
    """End a twin. If it succeeded before its step did, its result is the step's."""
    hf, output = call.server.hf, payload(one.output) or b"null"
    is_won = one.verb == "succeed" and len(output) <= call.server.config.payload_max_bytes
    answer = await hf.store.twins.end_twin(
        agent.id,
        (one.run, one.n, one.fence),
        TwinState.WON if is_won else TwinState.FAILED,
        output if is_won else None,
        outran_by(agent.id),
        logs=one.logs,
    )
    if is_won and answer is not Answer.FENCED:
        hf.caller.ring(Bell.OUTCOMES)
        hf.caller.ring(Bell.CANCELS)
    return answer


async def _operation(call: Call, agent: KnownAgent, one: Report, now: float) -> StepOp | None:
    """Return what a report writes. None for a report that cannot be understood."""
    ref, limit = (one.run, one.n, one.fence), call.server.config.payload_max_bytes
    if one.verb == "succeed":
        output = payload(one.output) or b"null"
        if len(output) > limit:
            text = f"the result has {len(output):,} bytes, and a payload may have {limit:,}"
            return _failed(ref, _error_text({"type": "InvalidInput", "message": text}, one), now, one)
        return Outcome(*ref[:2], StepState.SUCCEEDED, output, None, now, one.fence, None, one.logs)
    if one.verb == "save":
        checkpoint = payload(one.checkpoint) or None
        return Save(*ref, checkpoint=checkpoint, progress=one.progress, logs=one.logs)
    if one.verb == "hand_back":
        return HandBack(*ref, hold=one.hold, logs=one.logs)
    if one.verb not in {"fail", "retry", "quarantine"} or BETWEEN in one.step:
        return None
    try:
        fields = json.loads(payload(one.error) or b"{}")
        ending, failure = Ending(one.ending), Failure(one.failure)
    except ValueError:
        return None
    error = _error_text(fields if isinstance(fields, dict) else {"message": str(fields)}, one)
    if one.verb == "retry":
        return RetryStep(*ref, one.retry_in_s or 0.0, ending, error, one.excused, failure, one.logs)
    if one.verb == "quarantine":
        kind, step = one.kind or "Error", stored(agent.namespace, one.step)
        print_ = policy.fingerprint(step, kind, one.place)
        return QuarantineStep(*ref, ending, error, failure, print_, step, kind, one.place, one.logs)
    if one.final:
        return _failed(ref, error, now, one)
    return await _verdict(call, one, error, now)


def _failed(ref: tuple[str, int, int], error: str, now: float, one: Report) -> Outcome:
    return Outcome(*ref[:2], StepState.FAILED, None, error, now, one.fence, logs=one.logs)


def _error_text(fields: dict[str, Any], one: Report) -> str:
    """Return an error as it is recorded."""
    known = {
        **fields,
        "type": str(fields.get("type") or "Error"),
        "message": str(fields.get("message") or ""),
        "ending": str(fields.get("ending") or one.ending),
    }
    return json.dumps(known, ensure_ascii=False)


async def _verdict(call: Call, one: Report, error: str, now: float) -> StepOp | None:
    """Decide by the step's policy what becomes of a failed attempt. Agents in other languages need not know policies."""
    hf = call.server.hf
    found = await hf.store.reads.steps(one.run, after=one.n - 1, limit=1)
    if not found or found[0].n != one.n:
        return None
    row: StepRow = found[0]
    retry = Retry.decode(row.retry) if row.retry else Retry()
    failed = StepFailed(describe_error(error), error_type=json.loads(error)["type"], step=bare(row.name))
    verdict = policy.decide(
        retry,
        policy.classify(Ending(one.ending), failed),
        row,
        error=failed,
        elapsed_s=now - row.issued_at,
        random=hf.environment.random,
        config=hf.config,
    )
    ref = (one.run, one.n, one.fence)
    if isinstance(verdict, policy.RetryAfter):
        delay_s = verdict.after_s if one.retry_in_s is None else one.retry_in_s
        return RetryStep(*ref, delay_s, one.ending, error, verdict.excused, verdict.failure, one.logs)
    if isinstance(verdict, policy.GiveUp):
        return _failed(ref, error, now, one)
    kind = json.loads(error)["type"]
    print_ = policy.fingerprint(row.name, kind, one.place or "agent")
    return QuarantineStep(
        *ref, one.ending, error, verdict.failure, print_, row.name, kind, one.place or "agent", one.logs
    )


# --- life ---------------------------------------------------------------------------------------------------------


async def beat(call: Call) -> Given:
    given: Beat = call.body
    agent, hf = await _agent(call), call.server.hf
    if given.gone:
        call.server.doorway.hall.drop(agent.id)
        await hf.store.remotes.shorten(agent.id, 0.0)
        return Given(Beaten(now=await call.server.doorway.now(), renewed=False, stop=[]))
    pulse = None
    if given.pulse is not None:
        pulse = json.dumps({**msgspec.to_builtins(given.pulse), "lease_s": agent.lease_s})
    begun = await call.server.doorway.beats.begin(NewTurn(agent.id, 0, agent.lease_s, None, pulse=pulse))
    now = begun.now
    if now is None:
        call.server.doorway.agents.pop(agent.id, None)
        raise _gone()
    agent.renewed_at = hf.environment.monotonic()
    call.server.doorway.learn(hf.environment.monotonic(), now)
    if given.seen:
        observed = [
            Observation(_own(agent.namespace, one.name, "/seen"), one.ok, one.failed, one.error, one.round)
            for one in given.seen
        ]
        await hf.store.gates.observe(observed, hf.config.breaker_window_s)
        hf.caller.ring(Bell.GATES)
        call.server.doorway.forget_gates()
    if given.loads:
        loads = [LimitLoad(*one) for one in given.loads]
        await hf.store.limits.observe_limits(loads, agent.namespace)
    if given.durations:
        with contextlib.suppress(StoreError):
            counted = [(_stored_duration(agent, name), at, times) for name, at, times in given.durations]
            await hf.store.durations.add_durations(counted)
    # An agent learns nothing about runs in another namespace: it has claimed nothing there.
    own = [ref for ref in given.has if namespace_of(ref[0]) == agent.namespace]
    lost = [(run_id, n) for run_id, n, _ in given.has if namespace_of(run_id) != agent.namespace]
    lost += await hf.store.agents.lost_steps(own) if own else []
    lost_twins = await hf.store.twins.lost_twins(agent.id, given.twins) if given.twins else []
    gates = await _gates(call, agent, given.gates) if given.gates else None
    return Given(Beaten(now=now, renewed=True, stop=lost, stop_twins=lost_twins, gates=gates))


def _stored_duration(agent: KnownAgent, name: str) -> str:
    """Return the stored name of what an agent has measured. It measures only steps."""
    return step_name(_own(agent.namespace, name.removeprefix(STEP), "/durations"))


async def leave(call: Call) -> Given:
    agent, hf = await _agent(call), call.server.hf
    call.server.doorway.hall.drop(agent.id)
    call.server.doorway.agents.pop(agent.id, None)
    await hf.store.nodes.retire(agent.id)
    hf.caller.ring(Bell.STEPS)
    return Given(Left(True))


async def twin(call: Call) -> Given:
    """Keep a hedged step that is about to fail from getting a second attempt, or wait for the one that it has."""
    given: TwinAct = call.body
    agent, twins = await _agent(call), call.server.hf.store.twins
    if not is_secret(given.secret, agent.secret, given.run, given.n, given.fence):
        raise Refusal("unknown")
    if given.verb == "stop":
        await twins.stop_twin(given.run, given.n)
    elif given.verb != "bar":
        raise Refusal("invalid", "the verb is bar or stop", place="/verb")
    row = await twins.bar_twin(given.run, given.n)
    return Given(
        TwinSeen(str(row.state), row.agent, row.not_agent, row.made_at, row.started_at, row.ended_at)
    )


async def stream(call: Call) -> Given:
    """Say when an agent should look. When its end of the stream closes, its lease is shortened."""
    agent = await _agent(call)
    watch = call.server.watch
    return Given(call.server.doorway.stream(agent.id, lambda: watch.over(call.who, Act.WORK, call.headers)))
