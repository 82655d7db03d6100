"""What needs a person now, most urgent first. Pure: rows in, words out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from holdfast.model import Alert, AlertKind, AskPerson, AskRow, Breaker, BreakerState, Poison, RunRow
from holdfast.questions import answers, is_late, to_notify
from holdfast.supervisor.backlog import BacklogItem
from holdfast.supervisor.health import NodeHealth, NodeState
from holdfast.supervisor.moves import Move, answer_move, gate_move
from holdfast.supervisor.phrases import ago, command, counted, parsed, place, reason, remark
from holdfast.supervisor.why import breaker_words
from holdfast.wire.paths import path_of

AttentionKind = Literal[
    "stuck run",
    "quarantine",
    "nobody can do this",
    "store trouble",
    "breaker open",
    "late ask",
    "held run",
    "late run",
    "agent",
    "trouble",
    "ask",
]
ORDER: tuple[AttentionKind, ...] = get_args(AttentionKind)
"""Most urgent first."""
MOVES_MAX = 2
NAMED, QUESTION_MAX = 2, 80
"""How many questions are named, and how much of each."""
ALARMING = {
    AlertKind.STORE_TROUBLE: "store trouble",
    AlertKind.POOL_TROUBLE: "trouble",
    AlertKind.SCHEDULE_TROUBLE: "trouble",
    AlertKind.OCCASION_EXPIRED: "trouble",
    AlertKind.LEADER_LOST: "trouble",
}
"""Open alerts that are shown as they are. The others are about something that is looked at itself."""
HELD_BY_US = {"drift", "bug", "refused"}


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person."""

    kind: AttentionKind
    id: str
    """The same as long as it is about the same."""
    title: str
    sentence: str
    since: float
    run: str | None = None
    """The id of the run that it is about, as the store has it."""
    ask: str | None = None
    """The id of the question that it is about."""
    count: int = 1
    moves: list[Move] = []


class LeftOut(msgspec.Struct, frozen=True):
    kind: AttentionKind
    count: int


def in_order(found: Iterable[Attention]) -> list[Attention]:
    """Return what needs a person, most urgent first, and the oldest of a kind first."""
    return sorted(found, key=lambda one: (ORDER.index(one.kind), one.since, one.id))


def named(found: Sequence[Attention], limit: int) -> list[Attention]:
    """Return those that are named: of each kind the first, then of each kind the second, and so on. So many of one kind do not
    hide that there is another one."""
    turns: Counter[AttentionKind] = Counter()
    by_turn = []
    for n, one in enumerate(found):
        by_turn.append((turns[one.kind], n))
        turns[one.kind] += 1
    return [found[n] for n in sorted(n for _, n in sorted(by_turn)[:limit])]


def rest(found: Sequence[Attention], limit: int) -> list[LeftOut]:
    """Return how many of each kind are not named."""
    counts = Counter(one.kind for one in found) - Counter(one.kind for one in named(found, limit))
    return [LeftOut(kind, counts[kind]) for kind in ORDER if counts[kind]]


def headline(found: Sequence[Attention]) -> str:
    """Say in a few words how much needs a person."""
    if not found:
        return "Nothing needs a person"
    return f"{counted(len(found), 'thing')} need{'s' if len(found) == 1 else ''} a person"


def _act(run_id: str, verb: str, label: str, *, danger: bool = False) -> Move:
    return Move(
        verb=verb,
        label=label,
        command=command(verb, run_id).strip("`"),
        danger=danger,
        path=f"/v1/runs/{path_of(run_id)}/{verb}",
    )


def stuck(run: RunRow, shown: str, now: float) -> Attention:
    """`shown` is the run's id as the reader sees it."""
    cause = reason(run.note)
    return Attention(
        kind="stuck run",
        id=f"run:{shown}",
        title=f"{shown} is stuck",
        sentence=f"{cause or 'It cannot go on without a person'}.",
        since=run.created_at,
        run=run.id,
        moves=[_act(shown, "retry", "Try again")],
    )


def held(run: RunRow, shown: str, now: float) -> Attention | None:
    """Return a run that is held because something does not fit. One that a person holds needs nobody."""
    note = parsed(run.note)
    if note.get("why") not in HELD_BY_US and not note:
        return None
    title = "is held: its code no longer fits" if note.get("why") == "drift" else "is held"
    return Attention(
        kind="held run",
        id=f"run:{shown}",
        title=f"{shown} {title}",
        sentence=f"{note.get('message') or note.get('said') or 'It cannot be loaded'}",
        since=run.created_at,
        run=run.id,
        moves=[_act(shown, "release", "Release"), _act(shown, "cancel", "Cancel…", danger=True)],
    )


def poison(one: Poison, now: float) -> Attention:
    kinds = [("release", "Try again", False), ("fail", "Let it fail…", True)]
    return Attention(
        kind="quarantine",
        id=f"quarantine:{one.fingerprint}",
        title=f"{one.step} is in quarantine",
        sentence=f"{counted(one.steps, 'step')} of {counted(one.runs, 'run')} may kill their agents: {one.error} ({one.place}).",
        since=one.since,
        run=one.example,
        count=one.steps,
        moves=[
            Move(
                verb=f"quarantine {verb}",
                label=label,
                command=command("quarantine", verb, one.fingerprint).strip("`"),
                danger=danger,
                path=f"/v1/quarantine/{one.fingerprint}/{verb}",
            )
            for verb, label, danger in kinds
        ],
    )


def hopeless(one: BacklogItem, now: float) -> Attention:
    needs = f" with {', '.join(one.needs)}" if one.needs else ""
    noun, who = ("step", "agent") if one.kind == "step" else ("run", "scheduler")
    return Attention(
        kind="nobody can do this",
        id=f"{one.kind}:{one.name}:{','.join(one.needs)}",
        title=f"Nobody can do {one.name}{needs}",
        sentence=(
            f"{counted(one.ready, noun)} {'waits' if one.ready == 1 else 'wait'}, the oldest for {ago(now - one.since)}: "
            f"no live {who} has it. Start one with `{one.start}`."
        ),
        since=one.since,
        count=one.ready,
    )


def breaker(row: Breaker, now: float) -> Attention | None:
    if row.state is BreakerState.CLOSED:
        return None
    words = breaker_words(row, now)
    return Attention(
        kind="breaker open",
        id=f"breaker:{row.name}",
        title=f"The breaker of {row.name} is {row.state}",
        sentence=f"{words[:1].upper()}{words[1:]}.",
        since=row.opened_at or now,
        moves=[gate_move(row)],
    )


def agent(one: NodeHealth, now: float) -> Attention | None:
    """Return a process that is stalled, or gone with something in its hands."""
    if one.state not in {NodeState.STALLED, NodeState.OFFLINE} or not (one.steps or one.runs):
        return None
    has = " and ".join(
        counted(number, noun) for number, noun in ((one.steps, "step"), (one.runs, "run")) if number
    )
    return Attention(
        kind="agent",
        id=f"agent:{one.node.id}",
        title=f"{place(one.node)} is {one.state}",
        sentence=f"It has {has}, and gave no sign of life for {ago(one.silent_s)}.",
        since=now - one.silent_s,
    )


def asks(found: Sequence[tuple[AskRow, Sequence[AskPerson]]], now: float) -> list[Attention]:
    """Return the questions to people: each that is late, and the other ones together."""
    late = [one for one in found if is_late(one[0], now)]
    calm = [one for one in found if not is_late(one[0], now)]
    items = [
        Attention(
            kind="late ask",
            id=f"ask:{row.id}",
            title=f"{_quoted(row.question)} is late",
            sentence=f"{_asked(row, people, now)}.",
            since=row.asked_at,
            run=row.run_id,
            ask=row.id,
            moves=[answer_move(row)],
        )
        for row, people in late
    ]
    if calm:
        row = calm[0][0]
        words = "; ".join(
            f"{_quoted(each.question)} {_asked(each, people, now)}" for each, people in calm[:NAMED]
        )
        more = f"; and {len(calm) - NAMED} more" if len(calm) > NAMED else ""
        items.append(
            Attention(
                kind="ask",
                id="asks",
                title=f"{counted(len(calm), 'ask')} {'waits' if len(calm) == 1 else 'wait'}",
                sentence=f"{words}{more}.",
                since=row.asked_at,
                run=row.run_id if len(calm) == 1 else None,
                ask=row.id,
                count=len(calm),
                moves=[answer_move(row)],
            )
        )
    return items


def _quoted(question: str) -> str:
    line = " ".join(question.split())
    return f"“{line if len(line) <= QUESTION_MAX else line[: QUESTION_MAX - 1] + '…'}”"


def _asked(row: AskRow, people: Sequence[AskPerson], now: float) -> str:
    """Say for whom a question waits, and how long it may."""
    waits = f"waits for {', '.join(to_notify(people)) or 'nobody'}"
    have = f", {len(answers(people))} of {row.quorum} have answered" if row.quorum > 1 else ""
    if row.expires_at is None:
        return f"{waits}{have}"
    return f"{waits}{have}, and expires in {ago(row.expires_at - now)}"


def late(one: Alert) -> Attention:
    """Return a run that is late, or will be, or one of its steps."""
    what, _, said = one.message.partition(" is late: ")
    return Attention(
        kind="late run",
        id=one.key,
        title=f"{what[:1].upper()}{what[1:]} is late",
        sentence=f"{said[:1].upper()}{said[1:]}",
        since=one.at,
        run=one.run_id,
    )


def alarm(one: Alert, now: float) -> Attention | None:
    if one.kind in {AlertKind.RUN_LATE, AlertKind.STEP_LATE} and one.cleared_at is None:
        return late(one)
    kind = ALARMING.get(AlertKind(one.kind)) if one.kind in set(AlertKind) else None
    if kind is None or one.cleared_at is not None:
        return None
    return Attention(
        kind=kind,  # type: ignore[arg-type]  # it is one of them
        id=f"alert:{one.id}",
        title=one.kind[:1].upper() + one.kind[1:],
        sentence=one.message + remark(f"{one.times} times" if one.times > 1 else None),
        since=one.at,
        count=one.times,
        moves=[
            Move(
                verb="alerts clear",
                label="Clear",
                command=command("alerts", "clear", str(one.id)).strip("`"),
                path=f"/v1/alerts/{one.id}/clear",
            )
        ],
    )
