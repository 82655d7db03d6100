"""Limits, as authors write them: how many steps or runs may be at work at once under a key, and how many may begin."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from holdfast.errors import DefinitionError
from holdfast.namespaces import BETWEEN, stored
from holdfast.queues import FAIR_MAX_CHARS, LIMITS_MAX, RATES_MAX, LimitKey
from holdfast.workflow.options import INT_MAX, Seconds, seconds

OURS = ("namespace", "fair")
"""What a key may name beside the arguments."""
Full: TypeAlias = Literal["wait", "skip", "replace", "refuse"]
"""What becomes of a run that is started while its limit has no room."""
SHORTENED_CHARS = 150
KNOWN_MAX = 10_000
"""For how many fair keys the keys of limits are remembered. They are filled in again for the others."""


class Limit(NamedTuple):
    """How many may be at work at once under a key: `Limit("customer:{fair}", 5)`.

    The key may name arguments, and `{fair}` and `{namespace}`. A step counts while an agent executes it, a run from its
    beginning to its end. One that takes more than one slot has a `weight`. For runs, `full` says what becomes of a start
    while there is no room.

    `Limit("stripe", 50, adaptive=True)` is for a dependency of which nobody knows how much it bears. It finds the number by
    itself, from `least` up to 50, by how long the steps take and how they fail.
    """

    key: str
    most: int
    weight: int = 1
    full: Full = "wait"
    adaptive: bool = False
    least: int = 1


class Rate(NamedTuple):
    """How many may begin in a time under a key: `Rate("stripe:{account}", 100, per=60, burst=10)`.

    They begin evenly, and up to `burst` at once after a pause. Each attempt counts.
    """

    key: str
    most: int
    per: Seconds = 1.0
    burst: int = 1


class Limits(NamedTuple):
    """The limits of a step or a workflow, checked."""

    limits: tuple[Limit, ...]
    rates: tuple[tuple[Rate, float], ...]
    defaults: dict[str, Any]
    """The defaults of the arguments: a recorded input may lack them."""
    known: dict[tuple[str, str | None], tuple[LimitKey, ...]] | None = None
    """What was filled in before, by namespace and fair key. None if a key names an argument."""

    @property
    def full(self) -> Full:
        """What becomes of a start while a limit has no room. The strictest counts."""
        order: list[Full] = ["wait", "skip", "replace", "refuse"]
        return max((one.full for one in self.limits), key=order.index, default="wait")

    def filled(self, namespace: str, fair: str | None, raw: bytes | None) -> tuple[LimitKey, ...]:
        """Return these limits with their keys filled in, from a recorded input."""
        if self.known is None:
            return self._filled(namespace, fair, raw)
        found = self.known.get((namespace, fair))
        if found is None:
            if len(self.known) >= KNOWN_MAX:
                self.known.clear()
            found = self.known[namespace, fair] = self._filled(namespace, fair, None)
        return found

    def _filled(self, namespace: str, fair: str | None, raw: bytes | None) -> tuple[LimitKey, ...]:
        given: Mapping[str, Any] = {}
        if raw is not None:
            read = msgspec.json.decode(raw)
            given = read if isinstance(read, dict) else {}
        values = {**self.defaults, **given, "namespace": namespace, "fair": fair or ""}
        return (
            *(
                LimitKey(
                    _name(one.key, values, namespace),
                    one.most,
                    one.weight,
                    least=one.least if one.adaptive else None,
                )
                for one in self.limits
            ),
            *(
                LimitKey(_name(one.key, values, namespace), one.most, per_s=per_s, burst=one.burst)
                for one, per_s in self.rates
            ),
        )


def limits_of(value: object, fn: Any, what: str, *, of_runs: bool) -> Limits | None:
    """Check what an author wrote as `limits=`. None if there are no limits."""
    if isinstance(value, Limit | Rate):
        raise DefinitionError(f"{what}: expected a list of limits: write limits=[{value!r}]")
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise DefinitionError(f"{what}: expected a list of Limit and Rate, not {value!r}")
    found = list(value)
    limits = [one for one in found if isinstance(one, Limit)]
    rates = [one for one in found if isinstance(one, Rate)]
    for one in found:
        if not isinstance(one, Limit | Rate):
            raise DefinitionError(f"{what}: expected a Limit or a Rate, not {one!r}")
    if len(limits) > LIMITS_MAX or len(rates) > RATES_MAX:
        raise DefinitionError(
            f"{what}: at most {LIMITS_MAX} limits and {RATES_MAX} rates, not {len(limits)} and {len(rates)}"
        )
    keys = [one.key for one in found]
    if len(set(keys)) < len(keys):
        raise DefinitionError(f"{what}: each key once: {', '.join(map(repr, keys))}")
    parameters = _parameters(fn)
    for one in found:
        _check(one, parameters, what, of_runs=of_runs)
    if not found:
        return None
    defaults = {
        name: msgspec.to_builtins(parameter.default, enc_hook=str)
        for name, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    per = [(one, seconds(one.per, f"{what}: per") or 1.0) for one in rates]
    names_arguments = any(parameters.keys() & _named(one.key) for one in found)
    return Limits(tuple(limits), tuple(per), defaults, None if names_arguments else {})


def _named(key: str) -> set[str]:
    """Return what a key names."""
    return {name for _, name, _, _ in string.Formatter().parse(key) if name is not None}


def _parameters(fn: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(fn).parameters)


def _check(
    one: Limit | Rate, parameters: Mapping[str, inspect.Parameter], what: str, *, of_runs: bool
) -> None:
    where = f"{what}: {type(one).__name__}({one.key!r}, …)"
    _whole(one.most, f"{where}: the number")
    _check_key(one.key, parameters, where)
    if isinstance(one, Rate):
        _whole(one.burst, f"{where}: burst")
        return
    _whole(one.weight, f"{where}: weight")
    if one.weight > one.most:
        raise DefinitionError(
            f"{where}: the weight {one.weight} is more than the limit {one.most}: it could never begin"
        )
    if one.full not in get_args(Full):
        raise DefinitionError(f"{where}: full: expected one of {', '.join(get_args(Full))}, not {one.full!r}")
    if one.full != "wait" and not of_runs:
        raise DefinitionError(f"{where}: full={one.full!r} is for workflows: a step under a full limit waits")
    _check_adaptive(one, where, of_runs=of_runs)


def _check_adaptive(one: Limit, where: str, *, of_runs: bool) -> None:
    if not isinstance(one.adaptive, bool):
        raise DefinitionError(f"{where}: adaptive: expected True or False, not {one.adaptive!r}")
    _whole(one.least, f"{where}: least")
    if not one.adaptive:
        if one.least != 1:
            raise DefinitionError(f"{where}: least={one.least} is for adaptive limits: write adaptive=True")
        return
    if of_runs:
        raise DefinitionError(
            f"{where}: adaptive=True is for steps: how long a run takes says little about what it calls. Write it at the "
            "step that makes the call"
        )
    if one.least > one.most:
        raise DefinitionError(f"{where}: least={one.least} is more than the ceiling {one.most}")
    if one.weight > one.least:
        raise DefinitionError(
            f"{where}: the weight {one.weight} is more than the least {one.least}: it could not begin when the number has "
            f"fallen that low. Write least={one.weight}"
        )


def _whole(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= INT_MAX:
        raise DefinitionError(f"{what}: expected a whole number above 0, not {value!r}")


def _check_key(key: object, parameters: Mapping[str, inspect.Parameter], where: str) -> None:
    if (
        not isinstance(key, str)
        or not key
        or not key.isprintable()
        or key != key.strip()
        or len(key) > FAIR_MAX_CHARS
        or BETWEEN in key
        or key[0] == "$"
    ):
        raise DefinitionError(
            f"{where}: a key needs 1 to {FAIR_MAX_CHARS} printable characters, no spaces around it, no `//` in it and no $ "
            "before it"
        )
    try:
        parts = list(string.Formatter().parse(key))
    except ValueError as wrong:
        raise DefinitionError(f"{where}: {wrong}: braces are around the name of an argument") from None
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if spec or conversion or (name not in parameters and name not in OURS):
            takes = ", ".join(f"{{{one}}}" for one in (*parameters, *OURS))
            raise DefinitionError(f"{where}: there is no {{{name}}}: a key can name {takes}")
        if name in OURS and name in parameters:
            raise DefinitionError(
                f"{where}: {{{name}}} is an argument here, and also what we call the run's own: name the argument differently"
            )


def _name(key: str, values: Mapping[str, Any], namespace: str) -> str:
    """Return the stored name of a limit. Whatever an argument is, this gives a name, and other arguments give another."""
    filled = "".join(
        text + ("" if name is None else _text(values.get(name)))
        for text, name, _, _ in string.Formatter().parse(key)
    )
    is_storable = filled.isprintable() and len(filled) <= FAIR_MAX_CHARS and BETWEEN not in filled
    if not is_storable or filled != filled.strip():
        shown = "".join(one if one.isprintable() else "?" for one in filled[:SHORTENED_CHARS])
        digest = blake2b(filled.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        filled = f"{re.sub('/+', '/', shown).strip()}~{digest}"
    return stored(namespace, filled)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
