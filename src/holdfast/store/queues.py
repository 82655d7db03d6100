"""Queues and fair keys. A queue is made once and never changes, so whoever knows its number need not ask again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.actor import way
from holdfast.adaptation import first_number
from holdfast.namespaces import bare
from holdfast.queues import NO_QUEUE, LimitKey, Queue, QueueKey
from holdfast.store.database import Noun, Session, look, transaction
from holdfast.store.verbs import Verb

KNOWN_MAX = 20_000
"""How many queues a process remembers. It asks again for the others."""


class FairKey(NamedTuple):
    """A fair key that work waits or has waited under."""

    name: str
    """Its stored name."""
    weight: int
    actor: str
    note: str
    set_at: float | None


class Queues(Noun):
    async def number_queues(self, keys: Sequence[QueueKey]) -> list[Queue]:
        """Return these queues. New queues get a number."""
        texts = [key.text for key in keys]
        known = await self._queue_numbers(texts)
        missing = {text: key for text, key in zip(texts, keys, strict=True) if text not in known}
        limits = {one.name: one for key in keys for one in key.limits}
        if missing or (limits and await self._changed_limits(limits)):
            await self._make_queues(missing, limits)
            known = await self._queue_numbers(texts)
        return [known[text] for text in texts]

    @look
    async def _changed_limits(self, session: Session, limits: dict[str, LimitKey]) -> bool:
        """True if the code has another number for one of these limits than the store."""
        rows = await session.all(Verb.limits_named, [(name,) for name in sorted(limits)])
        known = {name: tuple(rest) for _, name, *rest in rows}
        return any(
            known.get(one.name) != (one.most, one.per_s, one.burst, one.least) for one in limits.values()
        )

    async def known_queues(self, keys: Sequence[QueueKey]) -> list[Queue]:
        """Return these queues, without making any. A queue that does not exist is queue 0."""
        known = await self._queue_numbers([key.text for key in keys])
        return [known.get(key.text, NO_QUEUE) for key in keys]

    @look
    async def _queue_numbers(self, session: Session, texts: Sequence[str]) -> dict[str, Queue]:
        rows = await session.all(Verb.queue_numbers, [(text,) for text in dict.fromkeys(texts)])
        return {
            text: Queue(number, tuple((one, cost) for one, cost in json.loads(limits)))
            for number, text, limits in rows
        }

    @transaction
    async def _make_queues(
        self, session: Session, keys: dict[str, QueueKey], limits: dict[str, LimitKey]
    ) -> None:
        """Make these queues, and write the numbers that the code has for these limits. The newest code is believed, but an
        operator who has set another number is believed more."""
        declared = [
            (
                name,
                "rate" if one.is_rate else "limit",
                one.most,
                one.per_s,
                one.burst,
                one.least,
                one.most if one.least is None else first_number(one.most, one.least),
            )
            for name, one in sorted(limits.items())
        ]
        await session.each(Verb.declare_limits, declared)
        rows = await session.all(Verb.limits_named, [(name,) for name in sorted(limits)])
        ids = {row[1]: row[0] for row in rows}
        made = [
            (
                text,
                key.fair,
                json.dumps([(ids[one.name], one.weight) for one in key.limits if not one.is_rate]),
                json.dumps([ids[one.name] for one in key.limits if one.is_rate]),
            )
            for text, key in sorted(keys.items())
        ]
        await session.each(Verb.make_queues, made)

    @look
    async def fairs(
        self, session: Session, namespace: str | None = None, after: str = "", limit: int = 1000
    ) -> list[FairKey]:
        """Return fair keys by name, from the one after `after` on."""
        return [FairKey(*row) for row in await session.rows(Verb.fairs, namespace, after, limit)]

    @transaction
    async def set_fair(self, session: Session, name: str, weight: int, actor: str, note: str) -> None:
        """Set the weight of a fair key. It counts at the next claim."""
        await session.run(Verb.set_fair, name, weight, actor, note)
        words = f"{bare(name)}: weight {weight}" + (f": {note}" if note else "")
        await session.run(Verb.journal_about, actor, "fair", name, words, *way(actor))


class QueueStore(Protocol):
    @property
    def queues(self) -> Queues: ...


class QueueNumbers:
    """The queues that this process has asked the store for."""

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self.known: dict[QueueKey, Queue] = {}
        self.exist = False
        """True if this process knows that there are queues. Then claims go from queue to queue."""

    async def number(self, keys: Sequence[QueueKey]) -> list[Queue]:
        missing = [key for key in dict.fromkeys(keys) if key not in self.known]
        if missing:
            if len(self.known) > KNOWN_MAX:
                self.known.clear()
            self.known.update(zip(missing, await self._store.queues.number_queues(missing), strict=True))
            self.exist = True
        return [self.known[key] for key in keys]
