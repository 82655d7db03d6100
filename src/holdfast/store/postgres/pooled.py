"""What the parts of this dialect share: statements on the small pool of connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from holdfast.config import Config
from holdfast.environment import Environment

T = TypeVar("T")


class Pooled(ABC):
    _environment: Environment
    _config: Config

    @abstractmethod
    async def _on_pool(
        self, use: Callable[[asyncpg.Connection[Any]], Awaitable[T]], *, patiently: bool = False
    ) -> T: ...

    async def _fetch(self, statement: str, *arguments: Any, patiently: bool = False) -> list[asyncpg.Record]:
        return await self._on_pool(
            lambda connection: connection.fetch(statement, *arguments), patiently=patiently
        )
