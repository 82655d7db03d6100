"""What only some seeds play: hedged steps, a dependency that is down for a while, gates, and quarantine. Others play
runs that meet under one id, operators who retry what has ended, and results and signals that cannot be read.

These parts have their own random numbers, and the other seeds do not know their steps. So the other seeds play as if
there were no such parts. A new one is a module here, with a class of its own: see `part.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.simulation.parts.acts import Acts
from tests.simulation.parts.budgets import Budgets
from tests.simulation.parts.callbacks import Callbacks
from tests.simulation.parts.calm import Calm
from tests.simulation.parts.deadlines import Deadlines
from tests.simulation.parts.deploys import Deploys
from tests.simulation.parts.door import Door
from tests.simulation.parts.events import Events
from tests.simulation.parts.forks import Forks
from tests.simulation.parts.gathers import Gathers
from tests.simulation.parts.halves import Halves
from tests.simulation.parts.hangs import Hangs
from tests.simulation.parts.hearts import Hearts
from tests.simulation.parts.keeps import Keeps
from tests.simulation.parts.labels import Labels
from tests.simulation.parts.limits import Limits
from tests.simulation.parts.logs import Logs
from tests.simulation.parts.mail import Mail
from tests.simulation.parts.maps import Maps
from tests.simulation.parts.occasions import Occasions
from tests.simulation.parts.outbox import Outbox
from tests.simulation.parts.part import Part
from tests.simulation.parts.promises import Promises
from tests.simulation.parts.repairs import Repairs
from tests.simulation.parts.retention import Retention
from tests.simulation.parts.schedules import Schedules
from tests.simulation.parts.started import Started
from tests.simulation.parts.steering import Steering
from tests.simulation.parts.stops import Stops
from tests.simulation.parts.threads import Threads
from tests.simulation.parts.transactions import Transactions
from tests.simulation.parts.updates import Updates
from tests.simulation.parts.walls import Walls

SHARE = 0.12
"""The share of the seeds that play them. The other seeds stay as many and as fast as they are."""
ALONE = 0.12
"""How often the walls keep other parts away."""
DISTURBING = frozenset(
    {"stops", "hearts", "threads", "hangs", "retention", "door", "walls", "halves", "deploys", "transactions"}
)
"""Parts in which something goes wrong by itself, or begins where Holdfast does not hear of it. A calm seed plays none."""
SCOPES = ("workflow", "step", "dependency", "namespace", "all")
NAMESPACES = ("default", "umbrella")
"""Namespaces that are held. All runs of these seeds are in the first one."""
USUAL_S = 0.04
"""How long most attempts of a hedged step took, as the store learned before the seed begins."""

KINDS: tuple[type[Part], ...] = (
    Deadlines,
    Halves,
    Keeps,
    Steering,
    Labels,
    Retention,
    Outbox,
    Stops,
    Threads,
    Deploys,
    Updates,
    Acts,
    Hangs,
    Mail,
    Started,
    Forks,
    Maps,
    Logs,
    Transactions,
    Hearts,
    Schedules,
    Promises,
    Gathers,
    Walls,
    Events,
    Limits,
    Door,
    Repairs,
    Callbacks,
    Occasions,
    Budgets,
    Calm,
)
"""The parts that have a module of their own."""


class Parts:
    """Which parts this seed plays, and when."""

    def __init__(self, seed: int, *, faults_s: float, plain: bool = False) -> None:
        """With `plain`, the seed plays none."""
        dice = self.dice = Random(f"gates/{seed}")
        self.any = dice.random() < SHARE and not plain
        self.hedge = self.any and dice.random() < 0.65
        self.gates = self.any and (not self.hedge or dice.random() < 0.5)
        self.both = self.hedge and self.gates
        self.shop_down: tuple[float, float] = (0.0, 0.0)
        """From when to when all calls to the shop fail."""
        self.holds: list[tuple[str, float, float]] = []
        """For each hold: its scope, after how many seconds it begins, and for how many it lasts."""
        self.forces: list[tuple[str, float, float]] = []
        """For each breaker that is forced: open or close, after how many seconds, and after how many more it is
        reset."""
        self.resolves = self.any and dice.random() < 0.7
        """Whether an operator decides about quarantine while things still go wrong."""
        self.kills = self.any and dice.random() < 0.3
        """Whether a step kills the process it runs in."""
        if self.gates:
            if dice.random() < 0.8:
                begin = dice.random() * 1.5
                self.shop_down = begin, min(faults_s, begin + 0.3 + dice.random() * 3)
            for _ in range(dice.choice((0, 1, 1, 2))):
                self.holds.append((dice.choice(SCOPES), dice.random() * 2, 0.3 + dice.random() * 2))
            if dice.random() < 0.25:
                self.forces.append((dice.choice(("open", "open", "close")), dice.random() * 2, 1.0))
        later = self.later = Random(f"families/{seed}")
        self.families = not self.any and later.random() < SHARE and not plain
        self.names = self.families and later.random() < 0.6
        """Whether runs start or join one another by their ids."""
        self.retries = self.families and (not self.names or later.random() < 0.6)
        """Whether an operator retries what has ended."""
        self.odd = self.families and later.random() < 0.5
        """Whether steps return what cannot be stored, and signals have values that cannot be read."""
        self.more: list[Part] = []
        """The parts with a module of their own that this seed plays."""
        if not self.any and not plain:
            self.more = [part for part in (kind(seed) for kind in KINDS) if part.is_played]
            if any(part.name == Labels.name for part in self.more):
                # With queues, claims go from queue to queue, and pass over full limits. What comes first is not one order then.
                self.more = [part for part in self.more if part.name != Limits.name]
            # Other parts ask any process about any run, and know nothing of processes behind a server. There are so many
            # parts that the walls would hardly ever be alone, so they sometimes keep the others away.
            walls = self.find(Walls.name)
            keeps_away = Random(f"walls alone/{seed}").random() < ALONE and not self.plays(Door.name)
            if walls is not None and keeps_away and not self.families:
                self.more = [walls]
            for alone in (Door.name, Walls.name):
                others = [part.name for part in self.more if part.name not in (alone, Walls.name)]
                if others or self.families:
                    self.more = [part for part in self.more if part.name != alone]
            if self.plays(Calm.name):
                self.more = [part for part in self.more if part.name not in DISTURBING]
        if [part.name for part in self.more] == ["acts"] or self.plays("repairs"):
            self.retries = True  # so that there is something that an act can retry, and that is mended
        if self.plays("retention"):
            self.names = False  # the id of a run that was removed can be given again, and with it its keys

    def __iter__(self) -> Iterator[Part]:
        return iter(self.more)

    def find(self, name: str) -> Part | None:
        """Return the part with this name, if the seed plays it."""
        return next((part for part in self.more if part.name == name), None)

    def plays(self, name: str) -> bool:
        """True if the seed plays the part with this name."""
        return any(part.name == name for part in self.more) or bool(getattr(self, name, False))

    def settings(self) -> dict[str, Any]:
        """Limits with which things that take minutes happen within seconds."""
        return {
            "learn_s": 2.0,
            "sweep_s": 0.5,
            "steps_max": self.dice.choice((2, 3, 8)),
            "breaker_failures_min": 3,
            "breaker_window_s": 3.0,
            "breaker_wait_s": 0.1,
            "breaker_open_s": 0.5,
            "breaker_open_max_s": 2.0,
            "probe_lost_s": 0.5,
            "losses_max": 1,
            "loss_back_off_s": 0.2,
            "suspect_losses": 1,
            "suspect_s": 2.0,
        }

    def steps(self) -> tuple[str, ...]:
        """Names of steps that plans are drawn from. A name that is listed twice is drawn twice as often."""
        names: tuple[str, ...] = ("work", "book", "compute")
        if self.hedge:
            names += ("fetch", "rent", "rent", "rent", "rent", "send")
        if self.gates:
            names += ("order", "order", "order", "ask", "ask")
        return names

    def behaviours(self) -> tuple[str, ...]:
        behaviours: tuple[str, ...] = ("ok", "quick", "quick", "flaky", "unsure", "gives up", "broken")
        if self.hedge:
            behaviours += ("slower", "slower", "slower", "lingers", "hangs", "saves")
            behaviours += ("stops late", "first stops late", "first fails late", "first fails late")
        if self.kills:
            behaviours += ("kills", "kills")
        return behaviours
