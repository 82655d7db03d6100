"""Sealed rows: the key that hides digests, and what is sealed with other keys than the newest.

These methods give and take rows as they are. Everything else of a sealed store goes through `store/sealed.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from holdfast.store.database import Noun, Session, look, statement
from holdfast.store.verbs import Verb

Values = tuple[bytes | None, ...]
ROUNDS_MAX = 20
"""How often the same rows are looked at. A process that still seals with the old key could go on for ever."""


class Table(NamedTuple):
    """A table with payloads. `start` is a key before all others."""

    name: str
    read: Verb
    write: Verb
    start: tuple[str | int | bool, ...]
    digests: tuple[int, ...] = ()
    """Which of its values are digests, by their places."""


TABLES = (
    Table("runs", Verb.sealed_runs, Verb.reseal_runs, ("",), digests=(1,)),
    Table("gathered", Verb.sealed_gathered, Verb.reseal_gathered, ("",), digests=(0,)),
    Table("steps", Verb.sealed_steps, Verb.reseal_steps, ("", -1), digests=(1,)),
    Table("signals", Verb.sealed_signals, Verb.reseal_signals, (-1,)),
    Table("asks", Verb.sealed_asks, Verb.reseal_asks, ("",)),
    Table("ask_people", Verb.sealed_answers, Verb.reseal_answers, ("", "")),
    Table("logs", Verb.sealed_logs, Verb.reseal_logs, ("", -1, -1, False, -1)),
    Table("events", Verb.sealed_events, Verb.reseal_events, ("", "", "")),
)


class SealedRow(NamedTuple):
    key: tuple[str | int | bool, ...]
    values: Values


class Seals(Noun):
    @look
    async def digest_key(self, session: Session) -> bytes | None:
        """Return the key that hides digests, sealed. None if nobody has sealed anything in this store."""
        row = await session.row(Verb.digest_key)
        return None if row is None else bytes(row[0])

    @statement
    async def add_digest_key(self, session: Session, sealed: bytes) -> int:
        """Write the key that hides digests, unless there is one already."""
        return await session.run(Verb.add_digest_key, sealed)

    @statement
    async def reseal_digest_key(self, session: Session, before: bytes, sealed: bytes) -> int:
        return await session.run(Verb.reseal_digest_key, before, sealed)

    @statement
    async def forget_items(self, session: Session) -> int:
        """Forget what batches were given apart from their input, which has it. Batches are not gathered where payloads are
        sealed, so these are older than the keys."""
        return await session.run(Verb.forget_items)

    @look
    async def rows(
        self, session: Session, table: Table, after: Sequence[str | int | bool], limit: int
    ) -> list[SealedRow]:
        """Return the rows of a table that come after a key, in the order of their keys."""
        width = len(table.start)
        return [
            SealedRow(tuple(row[:width]), tuple(None if one is None else bytes(one) for one in row[width:]))
            for row in await session.rows(table.read, *after, limit)
        ]

    @statement
    async def rewrite(self, session: Session, table: Table, rows: Sequence[tuple[SealedRow, Values]]) -> int:
        """Give rows other values. A row that has changed since it was read keeps what it has. Return how many were
        changed."""
        return await session.each(table.write, [(*row.key, *row.values, *values) for row, values in rows])


PASSES_MAX = 5
"""How often resealing walks through all tables at most."""


async def reseal_all(
    seals: Seals,
    change: Callable[[Table, Values], Values],
    *,
    batch: int,
    seen: Callable[[Table, int, int], None],
) -> dict[str, int]:
    """Walk through all tables until a walk changes nothing. Return how many rows of each were changed.

    Statements copy payloads as they are: an event that came before its wait, a child's result, the history of a retry. So a
    row that was walked past may get a payload from one that was not reached yet."""
    done = dict.fromkeys((table.name for table in TABLES), 0)
    for _ in range(PASSES_MAX):
        changed = 0
        for table in TABLES:
            found = await reseal(seals, table, change, batch=batch, seen=partial(seen, table))
            done[table.name] += found
            changed += found
        if not changed:
            break
    return done


async def reseal(
    seals: Seals,
    table: Table,
    change: Callable[[Table, Values], Values],
    *,
    batch: int,
    seen: Callable[[int, int], None],
) -> int:
    """Walk through a table and change its values. `seen` is called after each batch, with how many rows were read and
    changed so far. A crash leaves some rows changed, and the next walk changes the others."""
    after, read, changed, rounds = table.start, 0, 0, 0
    while rows := await seals.rows(table, after, batch):
        wanted = [(row, values) for row in rows if (values := change(table, row.values)) != row.values]
        # What is not written at once was changed since, or is locked. Then each row is a transaction, which may wait for it.
        parts = [wanted] if rounds == 0 else [[one] for one in wanted]
        done = sum([await seals.rewrite(table, part) for part in parts if part])
        changed, rounds = changed + done, rounds + 1
        if done < len(wanted) and rounds < ROUNDS_MAX:
            continue  # somebody wrote to a row between our reading and our writing it, or has locked it: look again
        read, rounds = read + len(rows), 0
        after = rows[-1].key
        seen(read, changed)
    return changed
