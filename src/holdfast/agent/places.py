"""The places of an agent: how many `async def` steps it executes at once, and how many `def` steps in threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.config import Config
from holdfast.workflow.step import Step


class Places:
    def __init__(self, config: Config, on_room: Callable[[], None]) -> None:
        self._config, self._on_room = config, on_room
        self._free_async, self._free_threads = config.steps_max, config.threads_max
        self.is_short = False
        """True if there were more steps than places. Then `on_room` is called when there are enough places again."""
        self._room_at = min(100, max(1, config.steps_max // 4))
        """How many `async def` places must be free before `on_room` is called, so that one claim gets many steps."""

    def free(self, is_async: bool) -> int:
        """Return how many steps of this kind may be claimed now."""
        return min(self._free_async if is_async else self._free_threads, self._config.claim_max)

    @property
    def full(self) -> float:
        """The share of the places that is in use, from 0 to 1: of the threads or of the places for `async def` steps,
        whichever share is larger."""
        config = self._config
        return max(1 - self._free_async / config.steps_max, 1 - self._free_threads / config.threads_max)

    def take(self, step: Step[Any, Any]) -> bool:
        """Take a place for this step. False if none is free."""
        if step.is_async:
            if self._free_async > 0:
                self._free_async -= 1
                return True
        elif self._free_threads > 0:
            self._free_threads -= 1
            return True
        self.is_short = True
        return False

    def overtake(self, step: Step[Any, Any]) -> None:
        """Take a place even if none is free."""
        if step.is_async:
            self._free_async -= 1
        else:
            self._free_threads -= 1

    def give_back(self, step: Step[Any, Any]) -> None:
        if step.is_async:
            self._free_async += 1
        else:
            self._free_threads += 1
        if self.is_short and (self._free_async >= self._room_at if step.is_async else self._free_threads > 0):
            self.is_short = False
            self._on_room()
