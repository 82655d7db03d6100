"""What agents and servers say to each other. Both ends ignore what they do not know, and agree on the number of a
protocol: agents of another version go on working while a server is upgraded."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.model import LogPart

PROTOCOL = 1
PROTOCOLS = frozenset({PROTOCOL})
"""Those that this version speaks."""
NAME_MAX, STEPS_MAX, HAS_MAX, REPORTS_MAX, PLACES_MAX = 200, 10_000, 100_000, 5_000, 100_000
SECRET_BYTES = 16

Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
Number = Annotated[int, Meta(ge=0, le=2_147_483_647)]
"""A whole number, at most as large as a store can keep."""
Ref = tuple[str, Number, Number]
"""(run, n, fence) of a step."""


def given(raw: Raw | UnsetType) -> bytes:
    """Return a payload, or nothing if it was left out."""
    return b"" if isinstance(raw, UnsetType) else bytes(raw)


class Group(msgspec.Struct):
    """Steps that share places."""

    name: Name
    steps: Annotated[list[Name], Meta(max_length=STEPS_MAX)]
    places: Annotated[int, Meta(ge=0, le=PLACES_MAX)] = 1


class Pool(msgspec.Struct):
    """The pool that an agent belongs to."""

    name: Name
    member: Name
    by: Name


class About(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What else an agent says about itself. Everybody who looks at agents reads it, so nothing else is kept."""

    steps: Annotated[list[Name], Meta(max_length=STEPS_MAX)] = []
    """The steps whose code it has. Without any, those of its groups."""
    hedged: Annotated[list[Name], Meta(max_length=STEPS_MAX)] = []
    """Those of its steps whose twins it takes."""
    sources: Annotated[list[tuple[str, str, str]], Meta(max_length=STEPS_MAX)] = []
    """(application, digest, file) of each source of its code."""
    step_sources: Annotated[list[Number], Meta(max_length=STEPS_MAX)] = []
    """For each of `steps`, the index of its source."""
    pool: Pool | None = None


class Register(msgspec.Struct, kw_only=True):
    """An agent introduces itself. The same `id` again is the same agent, so a lost reply does no harm."""

    protocol: Annotated[list[int], Meta(max_length=20)] = msgspec.field(default_factory=lambda: [PROTOCOL])
    id: Annotated[str, Meta(min_length=8, max_length=100, pattern="^[A-Za-z0-9_-]+$")] | None = None
    host: Annotated[str, Meta(max_length=NAME_MAX)] = ""
    pid: Annotated[int, Meta(ge=0, le=2_147_483_647)] = 0
    labels: Annotated[list[Name], Meta(max_length=100)] = []
    groups: Annotated[list[Group], Meta(min_length=1, max_length=100)]
    lease_s: Annotated[float, Meta(ge=0.1, le=300)] | None = None
    about: About = msgspec.field(default_factory=About)


class Registered(msgspec.Struct):
    agent: str
    protocol: int
    lease_s: float
    """After so many seconds without a word from the agent, its steps are given to others."""
    beat_s: float
    """How often an agent that has steps should beat."""
    wait_max_s: float
    """How long a claim may wait."""
    payload_max_bytes: int
    now: float
    """The store's time, in seconds since the epoch."""


class Claim(msgspec.Struct, kw_only=True):
    """Ask for steps. Each claim has a higher turn than the one before."""

    turn: Annotated[int, Meta(ge=1, le=9_007_199_254_740_991)]
    free: dict[str, Annotated[int, Meta(ge=0, le=PLACES_MAX)]]
    """How many steps of each group it can take now."""
    wait_s: Annotated[float, Meta(ge=0, le=20)] = 0.0
    has: Annotated[list[Ref], Meta(max_length=HAS_MAX)] | None = None
    """All steps that it has. Whatever the store says it has beyond these is handed back. Send it after a claim that got
    no answer; an agent without steps between two claims may always send an empty list."""
    twins: Annotated[list[Ref], Meta(max_length=HAS_MAX)] = []
    """With `has`: all twins that it has. The others end."""
    suspects: Annotated[int, Meta(ge=0, le=1)] = 1
    """0 if it executes a step now that may kill it: then it gets no other such step."""
    gates: str = ""
    """The mark of the gates that it knows."""


class Claimed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A step that the agent has now."""

    run: str
    n: int
    fence: int
    secret: str
    """Goes with every report about the step."""
    name: str
    key: str
    """The same for every attempt of this step: pass it on to whoever must not do the same thing twice."""
    step: str
    """The key of the step in its run."""
    input: Raw
    """The arguments, by name."""
    attempt: int
    attempts_max: int
    losses: int = 0
    excused: int = 0
    timeouts: int = 0
    throttled: int = 0
    timeout_s: float | None = None
    issued_at: float = 0.0
    retry: str | None = None
    checkpoint: Raw | UnsetType = UNSET
    error: str | None = None
    """The error of the last attempt."""
    probe: tuple[str, int] | None = None
    """(breaker, round), if the attempt tries out a dependency."""
    callback: str | None = None
    """Only if the step has a callback: the address to which another system posts the result. It is the same at every attempt,
    and empty if nobody has said where servers are reached."""
    trace: str | None = None
    """The span that the attempt belongs under, as W3C's header `traceparent` has it. Only from a server that traces."""
    twin: bool = False
    """It is a second attempt of a hedged step that another agent has. Only agents that register hedged steps get one. Reports
    say `twin`, too, and only a success changes something."""
    adapts: list[int] = []
    """The adaptive limits that it is under. Beats say how attempts under them went."""


class Gates(msgspec.Struct):
    """What keeps steps from beginning."""

    mark: str
    breakers: list[dict[str, Any]]
    holds: list[dict[str, Any]]


class Claims(msgspec.Struct, kw_only=True):
    turn: int
    now: float
    steps: list[Claimed]
    gates: Gates | None = None
    """Only if they are not those that the agent knows."""
    overtaken: bool = False
    """A claim of this turn or of a later one has taken something: its answer was lost, so say next what the agent has."""
    leaving: bool = False
    """The server leaves: ask another one."""


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of an attempt. `succeed` has the output. `fail` has the error, and the server decides by the step's
    policy whether it is tried again, unless it is `final`. `retry`, `quarantine`, `hand_back` and `save` are the verdicts
    of agents that decide by themselves."""

    verb: str
    run: str
    n: Number
    fence: Number
    secret: str
    output: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    """An object with `type` and `message`."""
    final: bool = False
    retry_in_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    ending: str = "failed"
    excused: bool = False
    failure: str = "application"
    hold: str | None = None
    fingerprint: str = ""
    step: str = ""
    kind: str = ""
    place: str = ""
    checkpoint: Raw | UnsetType = UNSET
    progress: str | None = None
    logs: list[LogPart] = []
    twin: bool = False
    """It is about a twin. It wins with `succeed`, and ends with everything else."""


class Reports(msgspec.Struct):
    reports: Annotated[list[Report], Meta(max_length=REPORTS_MAX)]


class Answers(msgspec.Struct):
    answers: list[str]
    """In the order of the reports: accepted, duplicate, fenced (somebody else has the step), refused."""


class Seen(msgspec.Struct):
    """What attempts say about a dependency."""

    name: str
    ok: Annotated[int, Meta(ge=0, le=1_000_000)]
    failed: Annotated[int, Meta(ge=0, le=1_000_000)]
    error: str | None = None
    round: Number | None = None


Duration = tuple[str, Annotated[int, Meta(ge=-200, le=400)], Annotated[float, Meta(ge=0, le=1e9)]]
"""(step, bucket, count): how many attempts took about so long. See `sketch.py`."""


Load = tuple[
    Number,
    Annotated[int, Meta(ge=0, le=1_000_000)],
    Annotated[int, Meta(ge=0, le=1_000_000)],
    Annotated[float, Meta(ge=0, le=1e9)],
]
"""(limit, succeeded, failed, seconds) of attempts under an adaptive limit. Failed are those that timed out, are tried again or
were asked to come later, and the seconds are of those that succeeded."""


class Pulse(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How an agent is. Everybody who looks at agents reads it, so nothing else is kept."""

    draining: bool = False
    succeeded: Number = 0
    """Attempts in the last minutes that succeeded."""
    failed: Number = 0
    has: Number = 0
    """How many steps it has."""
    full: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """The share of its places that are taken."""
    known: Number = 0
    """How many steps have their code loaded."""


class Beat(msgspec.Struct, kw_only=True):
    """A sign of life, which renews the lease."""

    has: Annotated[list[Ref], Meta(max_length=HAS_MAX)] = []
    """The steps that it has. The answer says which of them it has lost."""
    twins: Annotated[list[Ref], Meta(max_length=HAS_MAX)] = []
    """The twins that it has. The answer says which of them nobody needs any more."""
    pulse: Pulse | None = None
    seen: Annotated[list[Seen], Meta(max_length=1_000)] = []
    durations: Annotated[list[Duration], Meta(max_length=10_000)] = []
    loads: Annotated[list[Load], Meta(max_length=1_000)] = []
    gates: str = ""
    gone: bool = False
    """The agent's process has ended, as somebody says who has seen it. The lease ends at once, and nothing else is read."""


class Beaten(msgspec.Struct, kw_only=True):
    now: float
    renewed: bool
    """False if the lease has ended, because the process is gone."""
    stop: list[tuple[str, int]]
    """(run, n) of the steps that it no longer has: stop them, and report nothing."""
    stop_twins: list[tuple[str, int]] = []
    gates: Gates | None = None


class TwinAct(msgspec.Struct, kw_only=True):
    """What an agent asks about the second attempt of a hedged step that it has."""

    verb: str
    run: str
    n: Number
    fence: Number
    secret: str


class TwinSeen(msgspec.Struct):
    state: str
    agent: str | None
    not_agent: str | None
    made_at: float
    started_at: float | None
    ended_at: float | None


class Left(msgspec.Struct):
    left: bool


def secret_of(key: bytes, run: str, n: int, fence: int, *, twin: bool = False) -> str:
    """Return the secret of a claim. Nothing is stored for it: any server makes the same one again."""
    kind = "\0twin" if twin else ""
    text = f"{run}\0{n}\0{fence}{kind}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, key=key, digest_size=SECRET_BYTES).hexdigest()


def is_secret(given: str, key: bytes, run: str, n: int, fence: int, *, twin: bool = False) -> bool:
    made = secret_of(key, run, n, fence, twin=twin)
    return given.isascii() and hmac.compare_digest(given, made)
