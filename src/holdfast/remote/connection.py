"""An agent's connection to a server: it keeps one claim open, and a stream that says when to look.

Each claim has a turn. `seen` is the last turn whose answer arrived. If an answer got lost, the next claim says what this
agent has, and the server hands back whatever else the store says it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.bells import Bells
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import AccessError, HoldfastError, LeaseLost, StoreUnreachable
from holdfast.loops import cancel_all, wait_for
from holdfast.model import Breaker, Hold
from holdfast.remote.transport import Reply, Transport, error_of, read_answer, retry_after_s
from holdfast.store.answers import ShutGates
from holdfast.store.bell import Bell
from holdfast.wire.agents import Claim, Claimed, Claims, Gates, Ref
from holdfast.wire.paths import path_of

log = logging.getLogger("holdfast.remote")

T = TypeVar("T")

WAIT_S = 20.0
"""How long a claim waits at the server."""
SILENCE_S = 15.0
"""A stream that is silent for this long is broken: the server sends a line every 5 s."""
BACK_MIN_S, BACK_MAX_S, BACK_SOON_S = 0.2, 10.0, 2.0
"""How soon a lost server is asked again: at a random moment within this time, which doubles up to the most. For the
first tries it is never more than `BACK_SOON_S`, so that a fleet is back soon after a restart."""
SOON_TRIES = 10
GONE = "a server reclaimed this agent: its lease had ended"


class BackOff:
    def __init__(self, environment: Environment) -> None:
        self._environment, self._tries = environment, 0

    def reset(self) -> None:
        self._tries = 0

    async def pause(self, at_least_s: float = 0.0) -> None:
        most = min(
            BACK_MIN_S * 2 ** min(self._tries, 10), BACK_SOON_S if self._tries < SOON_TRIES else BACK_MAX_S
        )
        self._tries += 1
        await self._environment.sleep(max(at_least_s, self._environment.random.random() * most))


class ConnectedNode(Protocol):
    """What a connection needs from the node whose agent it connects."""

    id: str
    bells: Bells

    def has_lease(self) -> bool: ...
    def known_steps(self) -> set[Ref]:
        """Return the steps that are here, in any state."""

    def known_twins(self) -> set[Ref]:
        """Return the twins that are here, in any state."""

    def group_of(self, step: str) -> str:
        """Return the group of steps with which this one shares places."""

    async def renew_lease(self) -> None: ...
    def lose_lease(self, why: str) -> None: ...


class AgentConnection:
    def __init__(
        self, transport: Transport, node: ConnectedNode, environment: Environment, config: Config
    ) -> None:
        self.transport, self.node = transport, node
        self._environment, self._config = environment, config
        self.turn = self.seen = 0
        self.hand: list[Claimed] = []
        """Steps that were claimed, and that the agent has not taken up yet."""
        self.secrets: dict[Ref, str] = {}
        self.free: dict[str, int] = {}
        """How many steps of each group the agent can take."""
        self.suspects = 1
        self.is_doubtful = False
        """The next claim says what this agent has."""
        self.gates = ShutGates([], [])
        self.gates_mark = "-"
        self.wants_look = self.wants_twin_look = False
        """The agent should ask soon which of its steps, and of its twins, it has lost."""
        self._wake = asyncio.Event()
        self._closing = False
        self.claims = 0
        """How many claims were answered."""

    @property
    def path(self) -> str:
        return f"/v1/agents/{path_of(self.node.id)}"

    def close(self) -> None:
        """Claim nothing more."""
        self._closing = True
        self._wake.set()

    def want(self, free: dict[str, int], suspects: int) -> None:
        """Say how many steps the agent can take now."""
        if free != self.free or suspects != self.suspects:
            self.free, self.suspects = free, suspects
            self._wake.set()

    def take(self) -> list[Claimed]:
        hand, self.hand = self.hand, []
        return hand

    def doubt(self) -> None:
        """Say with the next claim what this agent has."""
        self.is_doubtful = True

    # --- asking -------------------------------------------------------------------------------------------------------

    async def ask(self, part: str, body: Any, gives: type[T], *, is_patient: bool = True) -> T:
        """Ask something as this agent. A patient caller asks again while the server is away. Raise LeaseLost if the server
        does not know this agent any more."""
        if is_patient:
            reply, _ = await self.transport.patiently("POST", self.path + part, True, {"body": body})
        else:
            reply = await self.transport.once("POST", self.path + part, body=body)
        return self.read(reply, gives)

    def read(self, reply: Reply, gives: type[T]) -> T:
        if 200 <= reply.status < 300:
            return read_answer(reply, gives, self.transport.shown)
        if reply.status == 410:
            self.node.lose_lease(GONE)
            raise LeaseLost(GONE)
        error = error_of(reply, None, self.transport.shown)
        if isinstance(error, AccessError):
            # An agent whose token was revoked cannot reach the store any more: its lease ends, and others do its steps.
            raise StoreUnreachable(str(error)) from error
        raise error

    def learn(self, gates: Gates | None) -> None:
        if gates is not None:
            self.gates_mark = gates.mark
            self.gates = ShutGates(
                msgspec.convert(gates.breakers, list[Breaker]), msgspec.convert(gates.holds, list[Hold])
            )
            self.node.bells.ring_here(Bell.GATES)

    # --- claiming -----------------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """Keep one claim open while the agent has room."""
        back, said = BackOff(self._environment), ""
        while not self._closing:
            if not any(self.free.values()) or not self.node.has_lease():
                await wait_for(self._wake, self._config.poll_s)
                continue
            self._wake.clear()
            try:
                found = await self._claim_or_ask_anew()
            except LeaseLost:
                return
            except StoreUnreachable as away:
                if str(away) != said:
                    said = str(away)
                    log.warning("claiming steps: %s", away)
                await back.pause()
            except HoldfastError as wrong:
                log.error("claiming steps: %s", wrong)
                await back.pause(1.0)
            except Exception:
                # Whatever the error is, try again: without this loop the agent would stand still.
                log.exception("claiming steps")
                await back.pause(1.0)
            else:
                back.reset()
                said = ""
                if found is not None and found.leaving:
                    await back.pause()

    async def _claim_or_ask_anew(self) -> Claims | None:
        """Claim. A claim that waits is given up, and None is returned, when there is room that it does not ask for: other
        places have become free meanwhile. The next claim says what this agent has, as after a lost reply."""
        free, suspects = dict(self.free), self.suspects
        claim = asyncio.ensure_future(self._claim())
        try:
            while not claim.done():
                waking = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait([claim, waking], return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if claim.done():
                    break
                self._wake.clear()
                has_more_room = any(left and not free.get(group) for group, left in self.free.items())
                if has_more_room or self.suspects > suspects or self._closing:
                    return None
            return claim.result()
        finally:
            await cancel_all([claim])

    async def _claim(self) -> Claims:
        self.turn += 1
        has, twins = None, list[Ref]()
        if self.is_doubtful or self.seen < self.turn - 1:
            self.is_doubtful = False
            has, twins = sorted(self.node.known_steps()), sorted(self.node.known_twins())
        body = Claim(
            turn=self.turn,
            free=self.free,
            wait_s=WAIT_S,
            has=has,
            twins=twins,
            suspects=self.suspects,
            gates=self.gates_mark,
        )
        reply = await self.transport.once("POST", f"{self.path}/claim", body=body, wait_s=WAIT_S)
        if reply.status in {429, 503}:
            await self._environment.sleep(retry_after_s(reply) * self._environment.random.random())
        found = self.read(reply, Claims)
        self.seen = self.turn
        self.is_doubtful = self.is_doubtful or found.overtaken
        self.claims += 1
        self.learn(found.gates)
        if found.steps:
            self.hand += found.steps
            free = dict(self.free)
            for one in found.steps:
                self.secrets[one.run, one.n, one.fence] = one.secret
                group = self.node.group_of(one.name)
                free[group] = max(0, free.get(group, 0) - 1)
            self.free = free
            self.node.bells.ring_here(Bell.STEPS)
        return found

    # --- the stream ---------------------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Keep a stream open. It says when to look, and from its end the server learns soon that this process is gone."""
        back = BackOff(self._environment)
        while not self._closing:
            try:
                async with self.transport.stream(f"{self.path}/stream", {}, SILENCE_S) as lines:
                    async for line in lines:
                        back.reset()
                        if line == "event: look":
                            self.wants_look = self.wants_twin_look = True
                            self.node.bells.ring_here(Bell.CANCELS)
                        elif line == "event: leave":
                            break
            except StoreUnreachable:
                pass
            except HoldfastError as wrong:
                log.debug("the stream: %s", wrong)
            except Exception:
                log.exception("the stream")
            if not self._closing:
                # The server may have shortened the lease because of this. So renew it now.
                with contextlib.suppress(HoldfastError):
                    await self.node.renew_lease()
            await back.pause()
