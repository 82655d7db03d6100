"""Acts on many runs through a server: the act desk, and the same handle as `Act`. The server lists the runs and carries the act
out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, cast

from holdfast.access import Identity
from holdfast.desk.acts import PAGE, Act, ActInfo
from holdfast.desk.opened import Opened
from holdfast.errors import UnknownAct, WrongState
from holdfast.model import ActOptions, ActRow, ActRun, ActState, Fate
from holdfast.remote import rows
from holdfast.remote.starts import moment
from holdfast.remote.transport import Transport
from holdfast.store.acts import LEFT
from holdfast.store.reads import RunFilter
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of

if TYPE_CHECKING:
    from holdfast.remote.desk import RemoteDesk

CARRY_S = 5.0
"""For how long one request carries an act out. After each, the caller hears how far it is."""


class RemoteActDesk:
    """An act desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def plan(self, who: Identity, verb: str, where: RunFilter, how: ActOptions, note: str) -> ActRow:
        """Plan an act on many runs. If the answer is lost, it is not sent again: that would make another plan."""
        if where.namespace is not None:
            who = who.within(where.namespace)
        body = requests.Plan(
            verb=verb,  # type: ignore[arg-type]  # whoever calls this has checked it
            state=list(where.states),
            workflow=where.workflow,
            tags=where.tags,
            since=moment(where.since),
            until=moment(where.until),
            error=where.error,
            prefix=where.prefix,
            traits=list(where.traits),
            runs=list(where.ids),
            note=note,
            force=how.force,
            start=how.start,
        )
        return rows.act(await self._transport.post(who, "/v1/acts", answers.Act, body, is_repeatable=False))

    async def get(self, who: Identity, act: str) -> ActRow:
        return rows.act(await self._transport.get(who, _act(act), answers.Act, unknown=lambda: _no_act(act)))

    async def carry_out(self, who: Identity, act: str, wait_s: float) -> ActRow:
        """Let the server carry out an act for a while, and return how far it is."""
        body = requests.CarryOut(wait_s=wait_s)
        found = await self._transport.post(
            who, f"{_act(act)}/go", answers.Act, body, lambda: _no_act(act), wait_s=wait_s
        )
        return rows.act(found)

    async def stop(self, who: Identity, act: str) -> bool:
        await self._transport.post(who, f"{_act(act)}/stop", answers.Act, None, lambda: _no_act(act))
        return True

    async def runs(
        self, who: Identity, act: str, fates: Sequence[str], after: str, limit: int
    ) -> list[ActRun]:
        query = {"fate": list(fates) or None, "after": after, "limit": limit}
        found = await self._transport.get(
            who, f"{_act(act)}/runs", answers.ActRuns, query, lambda: _no_act(act)
        )
        return [rows.act_run(one) for one in found.items]

    async def list(self, who: Identity, limit: int) -> list[ActRow]:
        found = await self._transport.get(who, "/v1/acts", answers.Acts, {"limit": limit})
        return [rows.act(one) for one in found.items]


def _act(act: str) -> str:
    return f"/v1/acts/{path_of(act)}"


def _no_act(act: str) -> UnknownAct:
    return UnknownAct(f"no act has the id {act!r}: `holdfast acts` lists them")


class Asking(Opened, Protocol):
    @property
    def desk(self) -> object: ...

    @property
    def who(self) -> Identity: ...


class RemoteAct(Act):
    @classmethod
    async def plan(
        cls, hf: Asking, desk: RemoteActDesk, verb: str, where: RunFilter, how: ActOptions, note: str
    ) -> RemoteAct:
        row = await desk.plan(hf.who, verb, where, how, note)
        return cls(hf, row.id, ActInfo(row).preview, actor=hf.who.actor)

    @property
    def _asking(self) -> tuple[RemoteActDesk, Identity]:
        hf = cast("Asking", self._hf)
        return cast("RemoteDesk", hf.desk).acts, hf.who

    async def row(self) -> ActRow:
        desk, who = self._asking
        return await desk.get(who, self.id)

    async def carry_out(self, progress: Callable[[ActInfo], None] | None = None) -> ActInfo:
        desk, who = self._asking
        while True:
            row = await desk.carry_out(who, self.id, CARRY_S)
            info = ActInfo(row)
            if progress is not None:
                progress(info)
            if row.state is not ActState.RUNNING:
                return info

    async def stop(self) -> ActInfo:
        desk, who = self._asking
        await desk.stop(who, self.id)
        return await self.info()

    async def runs(self, *fates: Literal["done", "changed", "refused", "left"]) -> AsyncIterator[ActRun]:
        known = {*map(str, Fate), LEFT}
        if wrong := [fate for fate in fates if fate not in known]:
            raise WrongState(f"act.runs({wrong[0]!r}): a fate is one of {', '.join(sorted(known))}")
        desk, who = self._asking
        after = ""
        while True:
            page = await desk.runs(who, self.id, fates, after, PAGE)
            for run in page:
                yield run
            if len(page) < PAGE:
                return
            after = page[-1].run_id
