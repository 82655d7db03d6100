"""Programs that are deployed one after the other in one process, as if each were another process."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.model import RunState
from holdfast.run import Run
from holdfast.workflow import registry


class Deployed:
    """One module of the name `name`, whose source is replaced by each deploy. Its steps share the list `ledger`."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger: list[str] = []
        self.name = name
        self._monkeypatch = monkeypatch

    def deploy(self, source: str) -> Any:
        self.forget()
        module: Any = ModuleType(self.name)
        module.__file__ = f"{self.name}.py"
        module.ledger = self.ledger
        self._monkeypatch.setitem(sys.modules, self.name, module)
        exec(compile(source, f"{self.name}.py", "exec"), module.__dict__)
        return module

    def forget(self) -> None:
        """Remove what the module declared."""
        for name in [name for name in registry.steps if name.startswith(f"{self.name}.")]:
            del registry.steps[name]
        for key in [key for key in registry.workflows if key[0].startswith(f"{self.name}.")]:
            del registry.workflows[key]


async def comes_to(true: Callable[[], Awaitable[object]], limit_s: float = 60.0) -> None:
    """Wait until something in the store is true."""
    async with asyncio.timeout(limit_s):
        while not await true():  # noqa: ASYNC110  a condition in the store has no event
            await asyncio.sleep(0.01)


async def is_in(run: Run[Any], *states: RunState) -> None:
    async def now() -> bool:
        return await run.state() in states

    await comes_to(now)


async def waits_for(run: Run[Any], key: str) -> None:
    """Wait until the run waits for the step with this key."""

    async def now() -> bool:
        return any(step.key == key and step.state == "waiting" for step in await run.steps())

    await comes_to(now)


async def count(hf: Holdfast, workflow: str) -> dict[str, int]:
    """Return how many runs of a workflow are in each state."""
    return dict(Counter(str(run.state) for run in await hf.runs(workflow=workflow, limit=100_000)))
