"""Statistics, as people look at them: how runs ended in a window of time, and what is usual."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from holdfast.access import Act, Identity
from holdfast.config import Config
from holdfast.desk.backlog import moment, waiting
from holdfast.lifecycle import RUN_ENDED
from holdfast.namespaces import shown, stored
from holdfast.store.overview import Stretch
from holdfast.store.store import Store
from holdfast.supervisor import statistics
from holdfast.supervisor.health import examine
from holdfast.supervisor.statistics import OfVersion, OfWorkflow, Slice, Took

MINUTE_S, DAY_S = 60.0, 86_400.0
SLICES_MAX = 60
"""Into how many slices a window is cut at most."""
ENDED_MAX = 10_000
"""How many ended runs of each state are looked at for statistics."""
DAYS = tuple(range(1, 8))


class Usual(msgspec.Struct):
    """The median of the same time of the last seven days."""

    ended: dict[str, float]


class Stats(msgspec.Struct, kw_only=True):
    """How runs without a parent ended in a window of time that ends now."""

    begun: datetime
    window_s: float
    slice_s: float
    is_exact: bool
    """False if more runs ended than were counted."""
    ended: dict[str, int]
    took: Took | None
    slices: list[Slice]
    workflows: list[OfWorkflow]
    """With `by=workflow`: those that fail most first."""
    versions: list[OfVersion]
    """With `by=version`: those that fail most first."""
    usual: Usual | None
    """None if nothing ended at this time of the last days."""
    succeeded: int
    failed: int
    """Attempts in the last minutes on all live processes."""
    oldest_ready: datetime | None
    """Since when the oldest step or run that nobody has claimed waits."""


class StatsAsked(NamedTuple):
    window_s: float = 3_600.0
    by: Literal["time", "workflow", "version"] = "time"
    workflow: str | None = None


async def stats(store: Store, config: Config, who: Identity, asked: StatsAsked) -> Stats:
    """Return how runs ended in the window that ends now, and what is usual at this time of the day."""
    who.demand(Act.READ)
    now, namespace = await store.now(), who.namespace
    window_s, slice_s = asked.window_s, max(MINUTE_S, asked.window_s / SLICES_MAX)
    begun = now - window_s
    name = None if asked.workflow is None else stored(namespace, asked.workflow)
    span, states = Stretch(begun, now, namespace, name), sorted(map(str, RUN_ENDED))
    runs, is_exact = await store.overview.ended_in(span, states, ENDED_MAX)
    runs = [one._replace(workflow=shown(namespace, one.workflow)) for one in runs]
    known = await store.overview.count_ended(span, states, DAYS, ENDED_MAX) if window_s <= DAY_S else {}
    waits = [one.since for one in await waiting(store, config, who) if not one.parked]
    nodes = [examine(node, (0, 0), now) for node in await store.nodes.nodes() if node.retired_at is None]
    is_all = namespace is None or who.may(Act.READ_STORE)
    usual = statistics.usual(known)
    return Stats(
        begun=moment(begun),
        window_s=window_s,
        slice_s=slice_s,
        is_exact=is_exact,
        ended=statistics.counts(runs),
        took=statistics.took(runs),
        slices=statistics.slices(runs, begun, window_s, slice_s),
        workflows=statistics.by_workflow(runs) if asked.by == "workflow" else [],
        versions=statistics.by_version(runs) if asked.by == "version" else [],
        usual=None if usual is None else Usual(usual),
        succeeded=sum(one.succeeded for one in nodes) if is_all else 0,
        failed=sum(one.failed for one in nodes) if is_all else 0,
        oldest_ready=moment(min(waits)) if waits else None,
    )
