"""How long steps take. Nodes add counts, and the leader makes old counts fade."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model import Landmark
from holdfast.store.answers import Overlong
from holdfast.store.database import Noun, Row, Session, leading, look, statement
from holdfast.store.verbs import Verb


class Durations(Noun):
    @statement
    async def add_durations(self, session: Session, counts: Sequence[tuple[str, int, float]]) -> None:
        """Add the counts of a node: (name, bucket, count). The same bucket may occur several times."""
        sums: dict[tuple[str, int], float] = {}
        for name, bucket, count in counts:
            sums[name, bucket] = sums.get((name, bucket), 0.0) + count
        await session.each(Verb.add_durations, [(*place, count) for place, count in sorted(sums.items())])

    @look
    async def durations(
        self, session: Session, names: Sequence[str] | None = None
    ) -> list[tuple[str, int, float]]:
        """Return (name, bucket, count) of these names, or of all steps if `names` is None."""
        rows: list[Row]
        if names is None:
            rows = await session.rows(Verb.step_durations)
        else:
            rows = await session.rows(Verb.durations, list(names))
        return [(name, bucket, count) for name, bucket, count in rows]

    @leading(0)
    async def fade_durations(
        self, session: Session, *, attempts_max: float, keep_s: float, rows_max: int
    ) -> int:
        """Halve the counts of names that were counted more than `attempts_max` times. Remove counts that have not grown
        for `keep_s`, and the oldest ones if there are more than `rows_max`. Return how many rows were changed."""
        halved = await session.run(Verb.halve_durations, attempts_max)
        gone = await session.run(Verb.forget_durations, keep_s)
        return halved + gone + await session.run(Verb.forget_oldest_durations, rows_max)

    @look
    async def landmarks(self, session: Session, run_ids: Sequence[str]) -> list[Landmark]:
        """Return how far each of these runs has come: its newest step, if it has one."""
        return [Landmark(*row) for row in await session.rows(Verb.landmarks, list(run_ids))]

    @look
    async def overlong_steps(
        self, session: Session, bounds: Sequence[tuple[str, float]], limit: int
    ) -> list[Overlong]:
        """Return running steps that run for longer than the bound of their name. `bounds` are (name, seconds). Steps
        without a twin come first, then the oldest."""
        names, seconds = [name for name, _ in bounds], [bound_s for _, bound_s in bounds]
        rows = await session.rows(Verb.overlong_steps, names, seconds, limit)
        return [Overlong(*row) for row in rows]
