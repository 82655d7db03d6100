"""Seals payloads on their way into the store, and opens them on their way out.

Whoever has keys wraps the nouns of its store by `wrap`. Nothing else in the process notices: what is given to the store and
what comes from it is plain, and only rows are sealed. The SQL copies payloads from row to row (a retry, a child's result)
without opening them. `FIELDS` says which fields of which classes are payloads; a test checks that no field is forgotten.

Sealed are inputs, results, checkpoints, signals, answers of updates, published values, logs and the data of events. (What runs
wait for, such as a subject, is a name.) Digests of inputs are
hidden. Errors stay readable, because operators search for them and Supervisors compare them. So do names, ids, tags, keys,
notes and progress, and the arguments of schedules, whose runs the leader starts without keys.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any, NamedTuple

import msgspec

from holdfast.codec import is_same_json
from holdfast.codec.secret import enter_sealed
from holdfast.errors import StoreSealed
from holdfast.keyring import KEY_BYTES, KEYS, DigestKey, Keyring, sealed_by
from holdfast.model import (
    AskPerson,
    AskRow,
    EventRow,
    LogPart,
    LogRow,
    NewAsk,
    NewEvent,
    NewRun,
    NewSignal,
    Outcome,
    RunRow,
    SignalRow,
    StepRow,
)
from holdfast.store.answers import ClaimedRequest, ClaimedRun, ClaimedStep, Probes, Undelivered, UpdateEnd
from holdfast.store.asks import GivenAnswer, SeenAsk, TakenAnswer
from holdfast.store.callbacks import GivenResult
from holdfast.store.database import Noun
from holdfast.store.events import Arrival, Emitted, SeenEvent
from holdfast.store.forks import ForkRequest
from holdfast.store.operations import Close, HandBack, Hop, NewStep, QuarantineStep, RetryStep, Save, Start
from holdfast.store.remotes import TakenStep
from holdfast.store.seals import Seals
from holdfast.store.store import Store

PAYLOAD, TEXT, DIGEST, PARTS, THIRD, VALUES = "payload", "text", "digest", "parts", "third", "values"
"""What a field is: a payload as bytes, a payload as a string, a digest of one, something that has such fields itself, tuples
whose third part is a payload, or payloads by name."""

FIELDS: dict[type, dict[str, str]] = {
    NewRun: {"input": PAYLOAD, "digest": DIGEST},
    RunRow: {"input": PAYLOAD, "digest": DIGEST, "output": PAYLOAD, "published": TEXT},
    StepRow: {"input": PAYLOAD, "digest": DIGEST, "output": PAYLOAD, "checkpoint": PAYLOAD},
    LogPart: {"body": PAYLOAD},
    LogRow: {"body": PAYLOAD},
    Outcome: {"output": PAYLOAD, "logs": PARTS},
    SignalRow: {"payload": PAYLOAD, "reply": PAYLOAD},
    NewSignal: {"payload": PAYLOAD},
    UpdateEnd: {"reply": PAYLOAD},
    ClaimedRun: {"run": PARTS, "steps": PARTS, "signals": PARTS},
    ClaimedStep: {"input": PAYLOAD, "checkpoint": PAYLOAD},
    ClaimedRequest: {"input": PAYLOAD, "checkpoint": PAYLOAD},
    TakenStep: {"step": PARTS},
    Probes: {"steps": PARTS},
    Undelivered: {"steps": PARTS, "signals": PARTS},
    ForkRequest: {"input": PAYLOAD, "digest": DIGEST, "results": VALUES},
    NewStep: {"input": PAYLOAD, "digest": DIGEST},
    Close: {"output": PAYLOAD},
    Hop: {
        "begin": PARTS,
        "outcomes": PARTS,
        "replies": THIRD,
        "ended": THIRD,
        "issued": PARTS,
        "sends": PARTS,
        "children": PARTS,
        "published": TEXT,
        "close": PARTS,
        "next_input": PAYLOAD,
        "logs": PARTS,
        "asks": PARTS,
    },
    RetryStep: {"logs": PARTS},
    QuarantineStep: {"logs": PARTS},
    HandBack: {"logs": PARTS},
    Save: {"checkpoint": PAYLOAD, "logs": PARTS},
    Start: {"run": PARTS},
    NewAsk: {"show": TEXT},
    AskRow: {"show": TEXT},
    AskPerson: {"value": PAYLOAD},
    SeenAsk: {"row": PARTS, "people": PARTS},
    GivenAnswer: {"value": PAYLOAD},
    TakenAnswer: {"seen": PARTS},
    GivenResult: {"output": PAYLOAD},
    NewEvent: {"data": PAYLOAD},
    EventRow: {"data": PAYLOAD},
    Arrival: {"event": PARTS, "starts": PARTS},
    Emitted: {"event": PARTS},
    SeenEvent: {"row": PARTS},
}
"""The payloads of each class that goes into the store or comes out of it."""
ARGUMENTS: dict[tuple[str, str], str] = {
    ("AgentTwins", "end_twin"): "output",
    ("Quarantine", "resolve_quarantine"): "result",
}
"""Methods of nouns that take a payload by itself: the class that has the method, its name, and the argument's."""

WRITTEN = frozenset(
    {
        "commit",
        "start_within",
        "take",
        "send_signal",
        "fork_run",
        "start_limited",
        "answer",
        "emit",
        "emit_within",
    }
)
"""By these methods callers, schedulers and agents write payloads."""


class Seal(NamedTuple):
    """What is done with payloads and digests in one direction."""

    payload: Callable[[bytes], bytes]
    digest: Callable[[bytes], bytes]

    def apply(self, value: Any) -> Any:
        """Return the value with its payloads changed. What has none comes back as it is."""
        kind = type(value)
        if kind is list:
            return [self.apply(one) for one in value]
        if kind is tuple:
            return tuple(self.apply(one) for one in value)
        if kind is dict:
            return {name: self.apply(one) for name, one in value.items()}
        fields = FIELDS.get(kind)
        if fields is None:
            return value
        changed = {name: self._field(what, getattr(value, name)) for name, what in fields.items()}
        if isinstance(value, tuple):
            return value._replace(**changed)  # type: ignore[attr-defined]
        return msgspec.structs.replace(value, **changed)

    def _field(self, what: str, value: Any) -> Any:
        if value is None:
            return None
        if what == PAYLOAD:
            return self.payload(bytes(value))
        if what == DIGEST:
            return self.digest(bytes(value))
        if what == TEXT:
            return self.payload(value.encode()).decode()
        if what == THIRD:
            return [(*one[:2], self.payload(one[2]), *one[3:]) for one in value]
        if what == VALUES:
            return {name: self.payload(one) for name, one in value.items()}
        if type(value) in FIELDS or not isinstance(value, Sequence):  # some of these classes are tuples
            return self.apply(value)
        return [self.apply(one) for one in value]


async def fit(store: Store, keys: Keyring | None) -> None:
    """Make the store do what its payloads and this process's keys ask for. Called when it has been opened."""
    sealed = await store.seals.digest_key()
    if keys is not None:
        enter_sealed()
        store.database.is_same = lambda one, other: is_same_json(keys.open(one), keys.open(other))
        wrap(store, *directions(keys, await _digest_key(store, keys, sealed)))
    elif sealed is not None:
        wrap(store, Seal(_demand_sealed, bytes), Seal(bytes, bytes), only=WRITTEN)


def directions(keys: Keyring, digests: DigestKey) -> tuple[Seal, Seal]:
    """Return what is done on the way in and on the way out."""
    return Seal(keys.seal, digests.seal), Seal(keys.open, digests.open)


async def _digest_key(store: Store, keys: Keyring, sealed: bytes | None) -> DigestKey:
    if sealed is None:
        await store.seals.add_digest_key(keys.seal(store.database.environment.secret(KEY_BYTES)))
        sealed = await store.seals.digest_key()
        assert sealed is not None
    secret = keys.open(sealed)
    if (key := sealed_by(secret)) is not None:
        raise StoreSealed(
            f"this store is sealed with the key {key!r}, and {KEYS} has only {', '.join(keys.ids)}: add it behind the first one, "
            "and run `holdfast keys reseal` to do without it"
        )
    return DigestKey(secret)


def _demand_sealed(raw: bytes) -> bytes:
    """What a process without keys may write: payloads that somebody with keys has sealed."""
    if sealed_by(raw) is None and raw != b"null":
        raise StoreSealed(
            f"the payloads of this store are sealed, and this process has no keys: set {KEYS}, or ask a process that has them"
        )
    return raw


def wrap(store: Store, inward: Seal, outward: Seal, only: Collection[str] | None = None) -> None:
    """Let all that callers pass to the nouns of this store go through `inward`, and all that they get through
    `outward`. `only` names the methods that this is about."""
    for noun in vars(store).values():
        if not isinstance(noun, Noun) or isinstance(noun, Seals):
            continue
        for name, _ in inspect.getmembers(type(noun), inspect.iscoroutinefunction):
            if not name.startswith("_") and (only is None or name in only):
                argument = _argument(type(noun), name)
                setattr(noun, name, _wrapped(getattr(noun, name), argument, inward, outward))


def _argument(noun: type, method: str) -> str | None:
    """Return the name of the argument that is a payload by itself."""
    return next(
        (arg for (owner, name), arg in ARGUMENTS.items() if name == method and owner in _names(noun)), None
    )


def _names(noun: type) -> list[str]:
    return [base.__name__ for base in noun.__mro__]


def _wrapped(
    method: Callable[..., Any], argument: str | None, inward: Seal, outward: Seal
) -> Callable[..., Any]:
    names = list(inspect.signature(method).parameters)

    @wraps(method)
    async def called(*args: Any, **kwargs: Any) -> Any:
        given = [inward.apply(one) for one in args]
        named = {name: inward.apply(one) for name, one in kwargs.items()}
        if argument is not None:
            place = names.index(argument)
            if argument in named:
                named[argument] = _sealed_or_none(inward, named[argument])
            elif place < len(given):
                given[place] = _sealed_or_none(inward, given[place])
        return outward.apply(await method(*given, **named))

    return called


def _sealed_or_none(inward: Seal, value: bytes | None) -> bytes | None:
    return None if value is None else inward.payload(value)
