"""Gates for operators who reach the store through a server: the same methods as `Gates`."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.access import Identity
from holdfast.gates import Placed, only_scope
from holdfast.model import Breaker, BreakerState, Hold
from holdfast.remote.desk import RemoteDesk


class RemoteGates:
    def __init__(self, opened: Callable[[], RemoteDesk], who: Callable[[], Identity]) -> None:
        self._opened, self._who = opened, who

    async def breakers(self) -> list[Breaker]:
        return await self._opened().breakers(self._who())

    async def open(self, dependency: str, note: str = "") -> Breaker:
        return await self._opened().force_breaker(self._who(), dependency, BreakerState.OPEN, note)

    async def close(self, dependency: str, note: str = "") -> Breaker:
        return await self._opened().force_breaker(self._who(), dependency, BreakerState.CLOSED, note)

    async def reset(self, dependency: str, note: str = "") -> Breaker:
        return await self._opened().reset_breaker(self._who(), dependency, note)

    async def holds(self) -> list[Hold]:
        return await self._opened().holds(self._who())

    async def hold(
        self,
        *,
        workflow: str | None = None,
        step: str | None = None,
        dependency: str | None = None,
        namespace: str | None = None,
        everything: bool = False,
        note: str = "",
    ) -> Placed:
        scope, value = only_scope(workflow, step, dependency, namespace, everything)
        return await self._opened().add_hold(self._who(), scope, value, note)

    async def release(
        self,
        *,
        workflow: str | None = None,
        step: str | None = None,
        dependency: str | None = None,
        namespace: str | None = None,
        everything: bool = False,
        note: str = "",
    ) -> Hold:
        scope, value = only_scope(workflow, step, dependency, namespace, everything)
        return await self._opened().remove_hold(self._who(), scope, value, note)
