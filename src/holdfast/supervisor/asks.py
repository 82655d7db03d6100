"""What the leader does about questions to people: it notifies them, reminds them, asks others after a while, and ends what
nobody has answered in time."""

from __future__ import annotations

from typing import Protocol

from holdfast.access.signed_texts import KEY_BYTES, signed
from holdfast.environment import Environment
from holdfast.model import Alert, AskRow, AskState
from holdfast.questions import asked_by, demands_teams, is_person, notified
from holdfast.store.asks import AskReads, LeaderAsks
from holdfast.store.signing_keys import SigningKeys

PURPOSE = "ask"
"""What links to asks are signed for."""
LINK_S = 30 * 86_400.0
"""For how long a link is good, if the ask does not expire sooner."""
BATCH_MAX = 200
"""How many asks one pass of the leader looks at."""


class AskKeeper:
    def __init__(self, store: LeaderAsks) -> None:
        self._store = store
        self.next_at: float | None = None
        """When there is next something to do, by the store's clock. None if there is nothing."""

    async def mind(self, epoch: int) -> int:
        """Do what is due about open asks. Return how many steps ended."""
        ended = 0
        for row in await self._store.due_asks(BATCH_MAX):
            ended += await self._store.mind_ask(epoch, row.id)
        self.next_at = await self._store.next_ask()
        return ended


class LinkStore(Protocol):
    """What is needed to make links."""

    @property
    def signing_keys(self) -> SigningKeys: ...

    @property
    def asks(self) -> AskReads: ...

    async def now(self) -> float: ...


async def link_path(store: LinkStore, row: AskRow, whom: tuple[str, str | None], secret: bytes) -> str:
    """Return the path of the page by which a person can answer, by name or as a member of a team. `secret` becomes the first
    key, if there is none."""
    keys = await store.signing_keys.certain_keys(secret)
    until = row.expires_at or await store.now() + LINK_S
    person, team = whom
    parts = (row.id, f"{row.asked_at:.6f}", person, f"{until:.0f}", *([team] if team else []))
    return f"/a/{signed(keys, PURPOSE, parts)}"


class Letters:
    """Writes what people get: the question, and a link to answer it. It stands in no row and in no log."""

    def __init__(self, store: LinkStore, environment: Environment) -> None:
        self._store, self._environment = store, environment

    async def of(self, alert: Alert, public_url: str | None) -> str | None:
        """Return what a person or team gets who is asked. None if they are not asked any more."""
        seen = await self._store.asks.ask(asked_by(alert.key))
        if seen is None or seen.row.state is not AskState.OPEN:
            return None
        row, who = seen.row, notified(alert.key)
        if public_url is None or not is_person(who) or demands_teams(row):
            return f"{row.question} (`holdfast asks {row.id}` shows it, and `holdfast answer {row.id} --data JSON` answers)"
        secret = self._environment.secret(KEY_BYTES)
        path = await link_path(self._store, row, (who, None), secret)
        return f"{row.question} {public_url.rstrip('/')}{path}"
