"""The Holdfast that a desk works for."""

from __future__ import annotations

from typing import Protocol

from holdfast.caller import Caller
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.namespaces import Namespaces
from holdfast.store.bell import Bell
from holdfast.store.store import Store


class Opened(Protocol):
    """The Holdfast that a desk works for."""

    config: Config
    environment: Environment
    namespaces: Namespaces

    @property
    def caller(self) -> Caller: ...

    @property
    def store(self) -> Store: ...

    @property
    def namespace(self) -> str | None: ...


def ring(hf: Opened, *bells: Bell) -> None:
    """Say to other processes that there is something to read."""
    for bell in bells:
        hf.caller.ring(bell)
