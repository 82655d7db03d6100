"""Hearts: processes beside the nodes that renew their leases. Here a heart is a thread that runs only while the simulation
waits for it, so the code of the product runs as it is, in virtual time. It goes on while its node is stopped, outlives
its node when that is killed, and dies with its host."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import Context
from typing import TYPE_CHECKING, Any

from holdfast.errors import StoreFull, StoreUnreachable
from holdfast.heartbeat import HeartProcess
from holdfast.store import heart as hearts
from holdfast.store.heart import LEAVE, Heart, HeartMessage, Order, Renewer, line_of
from holdfast.store.sqlite.verbs import STATEMENTS
from holdfast.store.verbs import Verb
from holdfast.testing.loop import PROCESS
from holdfast.testing.world import Process
from tests.simulation.ledger import ledger
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

BOOT_S = 0.3
"""How long a heart takes to begin."""
SLACK_S = 0.05
"""Clocks of processes are a little slow or fast."""


class Ended(BaseException):
    """The process that a thread plays is gone."""


class Fiber:
    """A thread that takes turns with the simulation: one of them runs, and the other waits."""

    def __init__(self, simulation: Simulation, play: Callable[[], None]) -> None:
        self._simulation, self._play = simulation, play
        self._turn, self._idle = threading.Semaphore(0), threading.Semaphore(0)
        self._timer: Any = None
        self._is_ended = False
        self.over = False
        self._thread = threading.Thread(target=self._main, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._idle.acquire()

    def _main(self) -> None:
        try:
            self._play()
        except Ended:
            pass
        except BaseException as error:  # noqa: BLE001  it is a failure of the seed
            self._simulation.broke(f"check raised {error!r} in a heart")
        finally:
            self.over = True
            self._idle.release()

    def rest(self, seconds: float) -> None:
        """Wait, as code of the thread, until this time has passed or somebody wakes it."""
        self._timer = self._simulation.loop.call_later(max(0.0, seconds), self.wake, context=Context())
        self._idle.release()
        self._turn.acquire()
        if self._is_ended:
            raise Ended

    def wake(self) -> None:
        """Let the thread go on until it waits again."""
        if not self.over:
            self._timer.cancel()
            self._turn.release()
            self._idle.acquire()

    def end(self) -> None:
        self._is_ended = True
        self.wake()


class SimulatedHeart(Heart):
    """A heart with its pipes, and what it sees of its node's process."""

    pid = 0

    def __init__(self, part: Hearts, simulation: Simulation, process: Process, order: Order) -> None:
        super().__init__(order, process.environment)
        self.part, self.simulation, self.process = part, simulation, process
        self.inbox, self.outbox = b"", b""
        self.is_closed = False
        self.read_at = simulation.loop.now + BOOT_S
        self.heard: Callable[[], None] = lambda: None
        self.fiber = Fiber(simulation, self._begin)

    def _begin(self) -> None:
        self.fiber.rest(BOOT_S)
        self.live()
        self._poke_node()

    def write(self, line: bytes) -> None:
        self.inbox += line
        self._poke()

    def _poke(self) -> None:
        self.simulation.loop.call_later(0.0, self.fiber.wake, context=Context())

    def _read(self, limit_s: float) -> bytes | None:
        if not self.inbox and not self.is_closed and not self.process.dead:
            self.fiber.rest(limit_s)
        read, self.inbox = self.inbox, b""
        if read:
            self.read_at = self.simulation.loop.now  # a heart that waits for the store reads later
        return read or (b"" if self.is_closed or self.process.dead else None)

    def say(self, message: HeartMessage) -> None:
        self.outbox += line_of(message)
        self._poke_node()

    def _poke_node(self) -> None:
        self.simulation.loop.call_later(0.0, self.heard, context=self.process.context.copy())

    def _rest(self, seconds: float) -> None:
        self.fiber.rest(seconds)

    def _is_parent_gone(self) -> bool:
        return self.process.dead

    def _is_parent_stopped(self) -> bool:
        return self.process.missed is not None and not self.part.blocks

    def _open_renewer(self) -> Renewer:
        return SimulatedRenewer(self)

    # --- as a process, which its node sees ----------------------------------------------------------------------------

    def poll(self) -> int | None:
        return 0 if self.fiber.over else None

    def kill(self) -> None:
        self.fiber.end()

    def wait(self) -> int:
        return 0


class SimulatedRenewer:
    """A heart's connection to the store, with what goes wrong between them."""

    def __init__(self, heart: SimulatedHeart) -> None:
        self._heart, self._order = heart, heart._order

    def renew(self, pulse: str | None, silent_s: float) -> float | None:
        """Renew, and check that the heart may do this now."""
        heart, order = self._heart, self._order
        simulation, process = heart.simulation, heart.process
        silence_s = simulation.loop.now - heart.read_at
        late_s = simulation.loop.now - simulation.leased_until.get(order.node, 0.0)
        if process.dead:
            simulation.broke(f"I40 the heart of {order.node} renews for a process that is gone")
        if process.missed is not None and silence_s > order.renew_s + SLACK_S and not heart.part.blocks:
            simulation.broke(
                f"I40 the heart of {order.node} renews for a process that was stopped {silence_s:.1f} s ago"
            )
        if silence_s > simulation.config.stall_s + SLACK_S:
            simulation.broke(
                f"I40 the heart of {order.node} renews for a node that was silent for {silence_s:.1f} s"
            )
        if late_s > SLACK_S:
            simulation.broke(f"I40 the heart of {order.node} renews a lease that ended {late_s:.1f} s ago")
        simulation.sometimes("a heart renewed a lease")
        return self._write(Verb.renew, (order.node, order.lease_s, pulse, silent_s))

    def say_gone(self) -> None:
        if not self._heart.process.dead:
            self._heart.simulation.broke(
                f"I40 the heart of {self._order.node} says that it is gone, and it is there"
            )
        self._heart.simulation.sometimes("a heart said that its process is gone")
        self._write(Verb.say_gone, (self._order.node,))

    def _write(self, verb: Verb, values: tuple[Any, ...]) -> float | None:
        simulation, process = self._heart.simulation, self._heart.process
        self._late()
        seams = simulation.seams
        if seams.is_cut_off(process) or self._heart.part.is_cut_off(simulation):
            raise StoreUnreachable("the store is away")
        if seams.full and not simulation.healed:
            raise StoreFull("the disk is full")
        connection = simulation.connection
        before = connection.total_changes()
        connection.execute("BEGIN IMMEDIATE")
        simulation.clock.begin_session()
        found: float | None = connection.execute(STATEMENTS[verb], values).get
        connection.execute("COMMIT")
        if connection.total_changes() == before:
            simulation.rolled_back()
        else:
            simulation.committed(process, str(verb), {"node": self._order.node})
        self._late()
        return found

    def _late(self) -> None:
        part, simulation = self._heart.part, self._heart.simulation
        if not simulation.healed and part.dice.random() < 0.25:
            simulation.sometimes("an answer to a heart was late")
            self._heart.fiber.rest(self._order.lease_s * part.dice.choice((0.05, 0.3, 0.85)))

    def close(self) -> None: ...


class SimulatedHeartProcess(HeartProcess):
    """What a node has of its heart."""

    def _launch(self) -> None:
        process, simulation = PROCESS.get(), ledger.simulation
        assert isinstance(process, Process)
        part = simulation.parts.find("hearts")
        assert isinstance(part, Hearts)
        heart = SimulatedHeart(part, simulation, process, self._order("simulated"))
        heart.heard = self.look
        self._process = heart  # type: ignore[assignment]
        self._unread, self._beating = b"", False
        part.hearts.append(heart)
        heart.fiber.start()

    def _say(self, line: bytes) -> None:
        heart: Any = self._process
        heart.write(line)

    def look(self) -> None:
        heart: Any = self._process
        if heart is None:
            return
        lines, heart.outbox = heart.outbox.splitlines(), b""
        for line in lines:
            self._heard(HeartMessage(**json.loads(line)))
        if heart.fiber.over and self._process is heart:
            self._back_off()
            self._kill()

    def _close_pipes(self) -> Any:
        heart: Any = self._process
        if heart is not None:
            heart.write(LEAVE + b"\n")
            heart.is_closed = True
        self._process = None
        return heart


class Hearts(Part):
    name = "hearts"
    share = 0.1

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.hearts: list[SimulatedHeart] = []
        begin = self.dice.random() * 2
        self._cut_off = (begin, begin + self.dice.choice((0.0, 1.0, 2.5)))
        self.blocks = self.dice.random() < 0.5
        """Whether a process that makes no progress is blocked by its own code, and not stopped by a signal."""

    def settings(self) -> dict[str, Any]:
        return {"stall_s": self.dice.choice((1.0, 60.0))}

    def begin(self, simulation: Simulation) -> None:
        for _ in range(self.dice.choice((0, 1, 2))):
            simulation._later(self.dice.random() * 4, lambda: self._kill_heart(simulation))

    def is_cut_off(self, simulation: Simulation) -> bool:
        """True if hearts cannot reach the store, whether their nodes can or not."""
        begin, end = self._cut_off
        return begin <= simulation.loop.now < end and not simulation.healed

    def _kill_heart(self, simulation: Simulation) -> None:
        """Kill a heart. Its node notices, renews by itself, and starts another one."""
        beating = [heart for heart in self.hearts if not heart.fiber.over]
        if beating and not simulation.healed:
            heart = self.dice.choice(beating)
            heart.kill()
            heart._poke_node()
            simulation.sometimes("a heart was killed")

    def killed(self, simulation: Simulation, process: Process) -> None:
        for heart in self.hearts:
            if heart.process is process and not heart.fiber.over:
                # A heart is never killed by its own code: the thread would wait for itself.
                simulation.loop.call_later(
                    0.0, heart.fiber.end if process.vanished else heart.fiber.wake, context=Context()
                )

    def close(self) -> None:
        for heart in self.hearts:
            if not heart.fiber.over:
                heart.fiber.end()


@mutant("a lease that a heart renewed counts from when it was asked for", within=200, part="hearts")
def hearts_count_from_the_answer(stack: ExitStack) -> None:
    real = HeartProcess._heard

    def heard(self: Any, message: HeartMessage) -> None:
        real(self, message._replace(sent=message.answered) if message.sent else message)

    code(stack, HeartProcess, "_heard", heard)


@mutant(
    "was: a node that renews by itself keeps its lease when its heart could not renew",
    within=60,
    part="hearts",
)
def nodes_believe_their_hearts(stack: ExitStack) -> None:
    real = HeartProcess._heard

    def heard(self: Any, message: HeartMessage) -> None:
        if message.end == hearts.LAPSED:
            self._lost("it could not renew in time")
        real(self, message)

    code(stack, HeartProcess, "_heard", heard)


@mutant("a heart renews no lease that has run out", within=100, part="hearts")
def hearts_renew_what_has_run_out(stack: ExitStack) -> None:
    real = Heart.beat

    def beat(self: Any) -> str | None:
        while (end := real(self)) == hearts.LAPSED:
            self._sent = self._environment.monotonic() - self._order.lease_s / 2
        return end

    code(stack, Heart, "beat", beat)


@mutant("a heart does not renew for a process that is stopped", within=100, part="hearts")
def hearts_renew_for_stopped_processes(stack: ExitStack) -> None:
    code(stack, SimulatedHeart, "_is_parent_stopped", lambda self: False)


@mutant("a heart that hears nothing from its node stops", within=100, part="hearts")
def hearts_never_take_a_node_for_stalled(stack: ExitStack) -> None:
    real = Heart.__init__

    def init(self: Any, order: Order, environment: Any) -> None:
        real(self, order._replace(stall_s=1e9), environment)

    code(stack, Heart, "__init__", init)


@mutant("a heart says that a process is gone only when it is", within=100, part="hearts")
def hearts_say_gone_when_they_leave(stack: ExitStack) -> None:
    code(stack, Heart, "is_orphaned", lambda self: True)
