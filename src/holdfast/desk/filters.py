"""Which runs are meant: reads what callers and operators say, and finds what cannot be meant.

`ps`, `hf.runs` and everything else that is about many runs make their `RunFilter` here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

import msgspec

from holdfast.desk.known_runs import may_exist
from holdfast.errors import InvalidInput, UnknownRun, UnknownWorkflow
from holdfast.model import RunState, Trait
from holdfast.namespaces import BETWEEN, stored
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store

Moment = str | datetime | timedelta
"""A time: itself, as ISO text, or how long ago it was, as a timedelta or a text such as `2h`."""
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
IDS_MAX = 1000
"""How many runs an act may name one by one."""
NAMED_MAX = 1000
"""How many declared workflows are searched for a name that is like an unknown one."""


def age(text: str) -> float | None:
    """Read an age such as 30d, 12h or 90min as seconds. None if it is none."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(s|min|h|d|w)", text.strip())
    return None if found is None else float(found[1]) * UNITS[found[2]]


def moment(value: Moment, what: str, now: float) -> float:
    """Read a time, as seconds since the epoch. A time without a zone is local time. `what` names its place in an
    error."""
    given: object = value
    try:
        if isinstance(value, str):
            seconds = age(value)
            value = datetime.fromisoformat(value.strip()) if seconds is None else timedelta(seconds=seconds)
        if isinstance(value, timedelta):
            return datetime.fromtimestamp(now - value.total_seconds(), UTC).timestamp()
        if isinstance(value, datetime):
            return value.timestamp()
    except (OverflowError, OSError, ValueError):
        pass  # such a year is in no calendar
    raise InvalidInput(
        f"{what}: {given!r} is no time: write how long ago it was (2h, 3d, 90min), or the time itself "
        "(2026-11-17, 2026-11-17T14:30, 2026-11-17T14:30Z)"
    )


def run_filter(
    *,
    now: float,
    states: Iterable[str] = (),
    workflow: str | None = None,
    tags: Mapping[str, str] | None = None,
    namespace: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    error: str | None = None,
    prefix: str | None = None,
    traits: Iterable[str] = (),
    ids: Iterable[str] = (),
    what: str = "runs({}=…)",
) -> RunFilter:
    """Return the filter that a caller describes. Raise InvalidInput for what cannot be meant. `what` says how the
    caller names an argument."""
    found = RunFilter(
        states=tuple(states),
        workflow=workflow,
        tags={str(key): str(value) for key, value in (tags or {}).items()},
        namespace=namespace,
        since=None if since is None else moment(since, what.format("since"), now),
        until=None if until is None else moment(until, what.format("until"), now),
        error=error,
        prefix=prefix,
        traits=tuple(dict.fromkeys(traits)),
        ids=tuple(dict.fromkeys(ids)),
    )
    for one in found.states:
        if one not in set(RunState):
            raise InvalidInput(
                f"{what.format('state')}: {one!r} is no state of a run: it is one of {', '.join(RunState)}"
            )
    for one in found.traits:
        if one not in set(Trait):
            raise InvalidInput(
                f"{what.format('is')}: {one!r} is nothing that a run may be: it is one of {', '.join(Trait)}"
            )
    for name in ("workflow", "namespace", "error", "prefix"):
        value = getattr(found, name)
        if value is not None and (not isinstance(value, str) or not value or "\0" in value):
            raise InvalidInput(f"{what.format(name)}: expected a text that is not empty, not {value!r}")
    if len(found.ids) > IDS_MAX:
        raise InvalidInput(
            f"{what.format('runs')}: {len(found.ids):,} runs; name at most {IDS_MAX:,} at once"
        )
    if any(not may_exist(wrong := one) for one in found.ids):
        raise InvalidInput(f"{what.format('runs')}: {wrong!r} cannot be the id of a run")
    if found.since is not None and found.until is not None and found.since >= found.until:
        raise InvalidInput(f"{what.format('until')}: it must be later than {what.format('since')}")
    return found


def within_namespace(where: RunFilter, namespace: str | None) -> RunFilter:
    """Return the filter of somebody who sees one namespace: its names are stored ones, and it finds nothing else.
    Without a namespace, its names are stored ones already."""
    if namespace is None:
        return where
    if where.namespace not in {None, namespace}:
        raise InvalidInput(f"namespace: this is about the namespace {namespace!r}, not {where.namespace!r}")
    prefix, before = where.prefix, where.before
    if prefix is not None and BETWEEN in prefix:
        raise InvalidInput(f"prefix: {prefix!r} has // in it, and no id in a namespace has that")
    if strange := next((one for one in where.ids if BETWEEN in one), None):
        raise UnknownRun.of(strange)
    return msgspec.structs.replace(
        where,
        namespace=namespace,
        prefix=None if prefix is None else stored(namespace, prefix),
        ids=tuple(stored(namespace, one) for one in where.ids),
        before=None if before is None else (before[0], stored(namespace, before[1])),
    )


async def demand_workflow(store: Store, name: str, namespace: str | None = None) -> None:
    """Raise UnknownWorkflow if no run has this workflow, and no code has declared it. Asked when a list is empty."""
    known = sorted({one.name for one in await store.workflows.workflows(NAMED_MAX, namespace)})
    if any(one == name or one.endswith(f".{name}") for one in known):
        return
    if await store.reads.runs(within_namespace(RunFilter(workflow=name, limit=1), namespace)):
        return
    raise unknown_workflow(name, known)


def name_like(name: str, known: Sequence[str]) -> str | None:
    """Return the full name that is most like a name that nothing has. None if there is none like it."""
    short = {one.rpartition(".")[2]: one for one in known}
    like = get_close_matches(name, known, 1) or [short[one] for one in get_close_matches(name, short, 1)]
    return like[0] if like else None


def unknown_workflow(name: str, known: Sequence[str]) -> UnknownWorkflow:
    """Return the error for a name that no workflow has, with one that is like it."""
    like = name_like(name, known)
    hint = f"did you mean {like!r}?" if like else f"known are {', '.join(known[:5])}" if known else ""
    return UnknownWorkflow(
        f"no workflow is called {name!r} in this store: {hint or 'no code has declared one yet'}"
    )
