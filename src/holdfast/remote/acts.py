"""Acts on many runs through a server: the same handle as `Act`. The server lists the runs and carries the act out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol, cast

from holdfast.access import Identity
from holdfast.acts import PAGE, Act, ActInfo
from holdfast.desk import Opened
from holdfast.errors import WrongState
from holdfast.model import ActOptions, ActRow, ActRun, ActState, Fate
from holdfast.remote.desk import RemoteDesk
from holdfast.store.acts import LEFT
from holdfast.store.reads import RunFilter

CARRY_S = 5.0
"""For how long one request carries an act out. After each, the caller hears how far it is."""


class Asking(Opened, Protocol):
    @property
    def desk(self) -> object: ...

    @property
    def who(self) -> Identity: ...


class RemoteAct(Act):
    @classmethod
    async def plan(
        cls, hf: Asking, desk: RemoteDesk, verb: str, where: RunFilter, how: ActOptions, note: str
    ) -> RemoteAct:
        row = await desk.plan(hf.who, verb, where, how, note)
        return cls(hf, row.id, ActInfo(row).preview)

    @property
    def _asking(self) -> tuple[RemoteDesk, Identity]:
        hf = cast("Asking", self._hf)
        return cast("RemoteDesk", hf.desk), hf.who

    async def row(self) -> ActRow:
        desk, who = self._asking
        return await desk.act(who, self.id)

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
        await desk.stop_act(who, self.id)
        return await self.info()

    async def runs(self, *fates: Literal["done", "changed", "refused", "left"]) -> AsyncIterator[ActRun]:
        known = {*map(str, Fate), LEFT}
        if wrong := [fate for fate in fates if fate not in known]:
            raise WrongState(f"act.runs({wrong[0]!r}): a fate is one of {', '.join(sorted(known))}")
        desk, who = self._asking
        after = ""
        while True:
            page = await desk.act_runs(who, self.id, fates, after, PAGE)
            for run in page:
                yield run
            if len(page) < PAGE:
                return
            after = page[-1].run_id
