"""Starts that one run takes: debounced starts, and starts in batches.

A key has at most one run that has not begun. A start either joins it or makes a new one, in one transaction that has locked
the key and the run. Each start is recorded by the id that it would have had, so a repeated start is taken once. What a batch
was given is put into its input when it is admitted, which needs the same lock.

`take` is a script: it yields statements and receives their rows, so that it runs in our own transactions and, through any
driver, in those of callers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from holdfast import codec
from holdfast.errors import InvalidInput
from holdfast.keyring import sealed_by
from holdfast.model import Gathering, NewRun, RunRow
from holdfast.store.answers import Answer
from holdfast.store.database import Noun, Row, Session, transaction
from holdfast.store.rows import start_row, tags_text
from holdfast.store.verbs import Verb


class ScriptStatement(NamedTuple):
    """A statement of a script."""

    verb: Verb
    values: Sequence[Any] = ()


class TakenStart(NamedTuple):
    """What became of a start."""

    answer: Answer
    run_id: str
    """The run that takes it."""


T = TypeVar("T")
Rows: TypeAlias = Sequence[Any]
Script: TypeAlias = Generator[ScriptStatement, Rows, TakenStart]

_arguments = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])


class Gathers(Noun):
    @transaction
    async def take(self, session: Session, run: NewRun) -> TakenStart:
        """Start a run of a workflow that gathers its starts, or let the key's run take it."""
        return await taken(session, run, self._database.config.payload_max_bytes)


async def taken(session: Session, run: NewRun, bytes_max: int) -> TakenStart:
    """Take a start in this transaction."""
    return await _played(session, take(run, bytes_max))


async def _rows(session: Session, ask: ScriptStatement) -> list[Row]:
    if ask.verb is Verb.start_runs:
        return await session.all(ask.verb, [tuple(ask.values)])
    return await session.rows(ask.verb, *ask.values)


def take(run: NewRun, bytes_max: int) -> Script:
    """The statements that take a start."""
    gather = run.gather
    assert gather is not None
    given = items_of(run.input, gather.parameter)
    while True:
        ((run_id, starts, items, size),) = yield ScriptStatement(Verb.lock_gather, (gather.key, run.id))
        is_open = bool((yield ScriptStatement(Verb.open_gather, (run_id,))))
        if is_open and gather.parameter and size + len(run.input) > bytes_max:
            yield from _admit(
                run_id, gather.parameter
            )  # with this start it would have more than an input may have
            is_open = False
        if not is_open:
            run_id, starts, items, size = run.id, 0, 0, 0
        raw = msgspec.json.encode(given) if gather.parameter else None
        noted = yield ScriptStatement(
            Verb.note_gathered,
            (run.id, run_id, starts + 1, run.workflow, run.digest, gather.parameter, raw),
        )
        if not noted:
            known = yield ScriptStatement(Verb.gathered_as, (run.id,))
            if not known:
                continue  # it was pruned since
            yield ScriptStatement(Verb.forget_gather, (gather.key,))
            ((run_id, workflow, digest),) = known
            return TakenStart(_judged(run, workflow, digest), run_id)
        if not is_open:
            started = yield ScriptStatement(
                Verb.start_runs, start_row(msgspec.structs.replace(run, begin_in_s=gather.first_s))
            )
            if not started:
                yield ScriptStatement(Verb.forget_gathered, (run.id,))
                existing = yield ScriptStatement(Verb.started_as, ([run.id],))
                if not existing:
                    continue  # it was pruned since
                yield ScriptStatement(Verb.forget_gather, (gather.key,))
                ((_, workflow, digest),) = existing
                return TakenStart(_judged(run, workflow, digest), run.id)
        elif not gather.parameter:
            yield ScriptStatement(
                Verb.move_debounced,
                (
                    run_id,
                    run.input,
                    run.digest,
                    tags_text(run),
                    run.priority,
                    gather.quiet_s,
                    gather.at_most_s,
                ),
            )
        items += len(given)
        yield ScriptStatement(
            Verb.keep_gather, (gather.key, run_id, starts + 1, items, size + len(run.input))
        )
        if gather.parameter and items >= gather.size:
            yield from _admit(run_id, gather.parameter)
        return TakenStart(Answer.ACCEPTED, run_id)


def _judged(run: NewRun, workflow: str, digest: Any) -> Answer:
    is_same = (workflow, bytes(digest)) == (run.workflow, run.digest)
    return Answer.DUPLICATE if is_same else Answer.FENCED


def _filled(run_id: str, parameter: str) -> Generator[ScriptStatement, Rows, bytes]:
    """Return the input of a batch with all items that it was given."""
    rows = yield ScriptStatement(Verb.batch_items, (run_id,))
    ((given,),) = yield ScriptStatement(Verb.batch_input, (run_id,))
    arguments = _arguments.decode(bytes(given))
    found = [item for (raw,) in rows for item in _items.decode(bytes(raw))]
    arguments[parameter] = msgspec.Raw(msgspec.json.encode(found))
    return msgspec.json.encode(arguments)


def _admit(run_id: str, parameter: str) -> Generator[ScriptStatement, Rows, None]:
    """Let a batch begin now, with all that it was given."""
    made = yield from _filled(run_id, parameter)
    yield ScriptStatement(Verb.fill_batch, (run_id, made, codec.digest(made)))
    yield ScriptStatement(Verb.admit_batch, (run_id,))


async def fill_batches(session: Session, run_ids: Sequence[str]) -> None:
    """Fill those of these runs that are batches. The transaction has locked all of them."""
    for run_id, made in (await _whole_inputs(session, run_ids)).items():
        await session.rows(Verb.fill_batch, run_id, made, codec.digest(made))


async def whole_input(session: Session, run: RunRow) -> bytes | None:
    """Return the input of a batch that never began, with all that it was given: its row has only what its first start gave
    it. None for any other run."""
    if run.started_at is not None:
        return None
    return (await _whole_inputs(session, [run.id])).get(run.id)


async def _whole_inputs(session: Session, run_ids: Sequence[str]) -> dict[str, bytes]:
    return {
        run_id: await _played(session, _filled(run_id, parameter))
        for run_id, parameter in await session.rows(Verb.batches_of, list(run_ids))
    }


async def _played(session: Session, script: Generator[ScriptStatement, Rows, T]) -> T:
    """Run the statements of a script, and return what it returns."""
    try:
        ask = next(script)
        while True:
            ask = script.send(await _rows(session, ask))
    except StopIteration as done:
        found: T = done.value
        return found


def items_of(raw: bytes, parameter: str) -> list[msgspec.Raw]:
    """Return the items that a start gives a batch. A debounced start gives none."""
    if not parameter:
        return []
    arguments = _arguments.decode(raw)
    if sealed_by(raw) is not None:
        raise InvalidInput(
            "input: a batch puts the arguments of several starts together, which cannot be done in a store that is sealed: start "
            "a run for each, without batch="
        )
    value = arguments.get(parameter)
    try:
        found = [] if value is None else _items.decode(bytes(value))
    except msgspec.DecodeError:
        found = []
    if not found:
        raise InvalidInput(f"input: `{parameter}` has the items for a batch: give one or more")
    return found


__all__ = [
    "Gathering",
    "Gathers",
    "Script",
    "ScriptStatement",
    "TakenStart",
    "fill_batches",
    "take",
    "taken",
    "whole_input",
]
