"""What a server remembers about the agents at its door. All of it may vanish at any moment: the store has the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from starlette.types import Receive, Scope, Send

from holdfast.desk.opened import Opened
from holdfast.environment import StoreClock
from holdfast.errors import StoreError
from holdfast.http.hall import Hall
from holdfast.http.watch import Open
from holdfast.store.answers import ShutGates
from holdfast.store.bell import Bell
from holdfast.store.remotes import NewTurn, TurnBegun

log = logging.getLogger("holdfast.http")

PING_S = 5.0
SHORT_S = 1.5
"""How long the lease of an agent lasts after its end of the stream has closed, unless the agent renews it."""
CUT_S, CUT_MIN, CUT_SHARE = 2.0, 3, 0.1
"""If more streams than this, and more than this share of them, end within this time, the network has failed and not the
agents. Then no lease is shortened."""
GATES_S = 0.25
LEARN_S = 10.0
"""After this time, a server asks the store again what time it is."""
AGENTS_MAX = 20_000
TURNS_MAX = 200
"""How many turns begin in one transaction at most."""
BEATS_S = 0.1
"""How long beats are gathered after others were written. So a thousand agents cost ten commits a second, and a beat that comes
alone does not wait."""


class TurnWriter:
    """Begins turns of many agents in one transaction: those that come while one is under way, or within `pause_s` after it, go
    into the next."""

    def __init__(self, hf: Opened, pause_s: float = 0.0) -> None:
        self._hf, self._pause_s = hf, pause_s
        self._queue: list[tuple[NewTurn, asyncio.Future[TurnBegun]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def begin(self, turn: NewTurn) -> TurnBegun:
        begun: asyncio.Future[TurnBegun] = asyncio.get_running_loop().create_future()
        self._queue.append((turn, begun))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="holdfast-turns")
        return await begun

    async def _write(self) -> None:
        while self._queue:
            batch, self._queue = self._queue[:TURNS_MAX], self._queue[TURNS_MAX:]
            try:
                answers = await self._hf.store.remotes.begin_turns([turn for turn, _ in batch])
            except Exception as error:  # noqa: BLE001  whoever asked gets it
                for _, begun in batch:
                    if not begun.done():
                        begun.set_exception(error)
                continue
            for (_, begun), answer in zip(batch, answers, strict=True):
                if not begun.done():
                    begun.set_result(answer)
            if self._pause_s:
                await self._hf.environment.sleep(self._pause_s)


class Doorway:
    def __init__(self, hf: Opened) -> None:
        self._hf = hf
        self.turns, self.beats = TurnWriter(hf), TurnWriter(hf, BEATS_S)
        self.hall = Hall(hf)
        self.agents: dict[str, Any] = _Bounded()
        self._streams: set[str] = set()
        self._ends: list[float] = []
        self._gates: tuple[float, ShutGates] | None = None
        self._clock = StoreClock(hf.environment)
        self._learned_at = float("-inf")
        self._looks: asyncio.Event | None = None

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    async def now(self) -> float:
        """Return the store's time. Outcomes are dated by it, so a server that does not know it yet asks for it: the clock
        of its host may be far ahead."""
        monotonic = self._hf.environment.monotonic
        if monotonic() > self._learned_at + LEARN_S:
            store_now = await self._hf.store.now()
            self.learn(monotonic(), store_now)
        return self._clock.now()

    def learn(self, at: float, store_now: float) -> None:
        self._clock.learn(at, store_now)
        self._learned_at = at

    async def gates(self, hf: Opened) -> ShutGates:
        """Return what keeps steps from beginning, as it was a moment ago."""
        now = hf.environment.monotonic()
        if self._gates is None or now > self._gates[0] + GATES_S:
            self._gates = now, await hf.store.gates.gates(hf.config.breaker_window_s)
        return self._gates[1]

    def forget_gates(self) -> None:
        self._gates = None

    def stream(self, agent: str, watched: Callable[[], AbstractContextManager[Open]]) -> AgentStream:
        return AgentStream(self, agent, watched)

    def opened(self, agent: str) -> None:
        self._streams.add(agent)

    def bell(self) -> asyncio.Event:
        """Return an event that is set when steps may have been cancelled."""
        return self._hf.caller.bells.follow(Bell.CANCELS)

    def unfollow(self, event: asyncio.Event) -> None:
        self._hf.caller.bells.unfollow(Bell.CANCELS, event)

    async def cut(self, agent: str) -> None:
        """An agent's end of its stream has closed. It may be dead: shorten its lease, unless many ended at once."""
        now, before = self._hf.environment.monotonic(), len(self._streams)
        self._streams.discard(agent)
        self._ends = [at for at in self._ends if at > now - CUT_S] + [now]
        self.hall.drop(agent)
        if len(self._ends) > max(CUT_MIN, CUT_SHARE * (before + len(self._ends))):
            log.warning("many streams of agents ended at once: the network failed, and no lease is shortened")
            return
        with contextlib.suppress(StoreError):
            await self._hf.store.remotes.shorten(agent, SHORT_S)

    def closed(self, agent: str) -> None:
        self._streams.discard(agent)


class _Bounded(dict[str, Any]):
    """A dict that forgets everything when it has too much. What is forgotten is read again."""

    def __setitem__(self, key: str, value: Any) -> None:
        if len(self) >= AGENTS_MAX:
            self.clear()
        super().__setitem__(key, value)


class AgentStream:
    """An answer that lasts: server-sent events to one agent. It notices when the agent's end closes."""

    status_code = 200
    headers: tuple[tuple[bytes, bytes], ...] = (
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    )

    def __init__(
        self, doorway: Doorway, agent: str, watched: Callable[[], AbstractContextManager[Open]]
    ) -> None:
        self._doorway, self._agent, self._watched = doorway, agent, watched

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._watched() as opened:
            await self._serve(opened, receive, send)

    async def _serve(self, opened: Open, receive: Receive, send: Send) -> None:
        doorway, agent = self._doorway, self._agent
        await send({"type": "http.response.start", "status": 200, "headers": list(self.headers)})
        doorway.opened(agent)
        closed = asyncio.ensure_future(_until_closed(receive))
        rung = doorway.bell()
        is_cut = False
        try:
            await send({"type": "http.response.body", "body": b"event: ping\n\n", "more_body": True})
            while True:
                ringing = asyncio.ensure_future(rung.wait())
                pausing = asyncio.ensure_future(opened.pause(PING_S))
                await asyncio.wait([closed, ringing, pausing], return_when=asyncio.FIRST_COMPLETED)
                is_rung = ringing.done()
                ringing.cancel()
                pausing.cancel()
                if closed.done():
                    is_cut = not opened.over.is_set()
                    return
                if opened.over.is_set():
                    break
                rung.clear()
                event = b"event: look\ndata: {}\n\n" if is_rung else b"event: ping\ndata: {}\n\n"
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send(
                {"type": "http.response.body", "body": b"event: leave\ndata: {}\n\n", "more_body": False}
            )
        finally:
            doorway.unfollow(rung)
            closed.cancel()
            if is_cut:
                await doorway.cut(agent)
            else:
                doorway.closed(agent)


async def _until_closed(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
