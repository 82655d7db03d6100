"""What a process uses to start runs through a server, and to wait for their end. All results that it waits for share
one long poll."""

from __future__ import annotations

import asyncio
import logging

from holdfast.access import Identity
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import HoldfastError, StoreGone, StoreUnreachable, UnknownRun
from holdfast.loops import Watchers, cancel_all
from holdfast.model import RunState
from holdfast.remote.desk import RemoteDesk
from holdfast.remote.rows import error, maybe
from holdfast.store.operations import Close
from holdfast.wire import requests

log = logging.getLogger("holdfast.remote")

GATHER_S = 0.005
"""How long a new watcher waits for others, before the poll that is under way is asked anew with all of them."""
LOOK_AT_MAX = 20
"""How many runs are looked at one by one after a poll without an answer: these may have been removed."""


class RemoteCaller:
    def __init__(self, desk: RemoteDesk, who: Identity, environment: Environment, config: Config) -> None:
        self._desk, self._who = desk, who
        self._environment, self._config = environment, config
        self.id = environment.new_id()
        self.gone: StoreGone | None = None
        self.started = False
        self._watchers: Watchers[str, Close | None] = Watchers()
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def start(self, first: str | None = None) -> None:
        self.started = True

    async def stop(self, drain_s: float | None = None) -> None:
        if self._watching is not None:
            await cancel_all([self._watching])
            self._watching = None
        self._watchers.cancel()

    def watch_end(self, run_id: str) -> asyncio.Future[Close | None]:
        """Return a future that gets how the run ended. It gets None if there is no such run."""
        if run_id not in self._watchers:
            self._changed.set()
        watcher = self._watchers.add(run_id)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="holdfast-watch")
        return watcher

    async def _watch(self) -> None:
        """Ask which of the watched runs have ended, until nobody watches any more."""
        turn = 0
        while self._watchers:
            await self._environment.sleep(GATHER_S)
            self._changed.clear()
            known = list(self._watchers)
            start = turn % len(known) if len(known) > requests.ENDED_MAX else 0
            asked = (known[start:] + known[:start])[: requests.ENDED_MAX]
            turn += len(asked)
            wait_s = requests.WAIT_MAX_S if len(asked) == len(known) else 0.2
            try:
                found = await self._poll(asked, wait_s)
            except StoreUnreachable as away:
                log.warning("waiting for results: %s", away)
                await self._environment.sleep(0.2 + self._environment.random.random() * 2)
            except HoldfastError as wrong:
                for run_id in asked:
                    self._watchers.fail(run_id, wrong)
            else:
                if found is False:
                    await self._look_for_gone(asked)

    async def _poll(self, asked: list[str], wait_s: float) -> bool | None:
        """Ask once. False if there was no answer to give. None if it was given up, because there are new watchers."""
        poll = asyncio.ensure_future(self._desk.runs.ends(self._who, asked, wait_s))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([poll, changed], return_when=asyncio.FIRST_COMPLETED)
            if not poll.done():
                return None
            ended = poll.result()
        finally:
            changed.cancel()
            poll.cancel()
        for one in ended:
            output = None if one.state is not RunState.SUCCEEDED else bytes(one.output)
            self._watchers.answer(
                one.id, Close(one.state, output, error(one.error), maybe(one.finished_at) or 0.0)
            )
        return bool(ended)

    async def _look_for_gone(self, asked: list[str]) -> None:
        """Answer the watchers of runs that were removed before their watchers got an answer."""
        for run_id in asked[:LOOK_AT_MAX]:
            if run_id in self._watchers:
                try:
                    await self._desk.runs.get(self._who, run_id)
                except UnknownRun:
                    self._watchers.answer(run_id, None)
                except StoreUnreachable:
                    return

    def look_for_ends(self) -> None:
        """Look now whether a watched run has ended."""
