"""The way from plain code to the store, for the few words that work in and out of a workflow. Set by `Holdfast`."""

from __future__ import annotations

from typing import Protocol


class Door(Protocol):
    async def send_signal(self, run_id: str, name: str, payload: bytes, key: str | None) -> None: ...


current: Door | None = None
"""The open `Holdfast` of this process, if there is one."""
