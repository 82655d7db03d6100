"""What the leader does when a node dies, or when an attempt does not end in time.

A node is dead when its lease has run out or its process is known to be gone. Then the leader reclaims its runs and its
steps. The runs lose their owner, so that another scheduler claims them. What happens to each step is decided by the
same policy that agents use. Reclaiming raises the fence of every row, so whatever the node still writes matches no row.
The leader reclaims in the same way a single attempt that a living agent did not end in time (a hung thread, a stopped
process).

Pure functions here decide who is dead and what follows. The store calls them while it has the rows locked.
"""

from __future__ import annotations

import json
import random as chance
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from holdfast import policy
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import StepFailed, StepLost, StepTimeout
from holdfast.model import AlertKind, Ending, Failure, Level, NewAlert, Quarantined, StepState
from holdfast.programs import name_of
from holdfast.store.answers import LostStep, Remedy, SeenNode
from holdfast.store.leader import Leader


class Death(StrEnum):
    """Why a node is dead, in words for people."""

    GONE = "its process is gone"
    LAPSED = "its lease ran out"
    LEFT = "it left and still had runs or steps"
    """It has retired, or its row is gone, and it has runs or steps all the same: a process that was paused claimed
    something after the leader had reclaimed from it."""


async def reclaim_lost(store: Leader, epoch: int, environment: Environment, config: Config) -> int:
    """Reclaim what dead nodes have. Return how many runs, steps and nodes. A node that has more than `claim_max` runs
    or steps is finished by the next passes."""
    reclaimed = 0
    for node in await store.doubtful_nodes():
        remedy = partial(_remedy_of, node, environment.random, config)
        done = await store.reclaim(epoch, node, death_of, remedy, offline, config.claim_max)
        if done is None:
            break  # another node leads now, and does the rest
        reclaimed += done.runs + done.steps + done.is_retired
    return reclaimed


async def end_overdue(store: Leader, epoch: int, environment: Environment, config: Config) -> int:
    """Time out overdue attempts. Their agent should do that itself, and has a grace period for it. Return how many."""
    remedy = partial(remedy_of, overdue(), environment.random, config)
    return await store.end_overdue(epoch, config.timeout_grace_s, remedy, config.claim_max)


# --- who is dead ------------------------------------------------------------------------------------------------------


def death_of(node: SeenNode | None, now: float) -> Death | None:
    """Return why the node is dead; None while it lives. A node that only lost its connection is not dead."""
    if node is None or node.retired_at is not None:
        return Death.LEFT
    if node.gone_at is not None:
        return Death.GONE
    return Death.LAPSED if node.lease_until < now else None


def offline(node: SeenNode, note: str) -> NewAlert:
    """Return the alert about a node that is gone. One host has one such alert, however many of its processes are
    gone."""
    return NewAlert(
        AlertKind.AGENT_OFFLINE,
        Level.WARNING,
        f"{AlertKind.AGENT_OFFLINE}:{node.host}",
        f"node {node.id} ({node.roles}; {node.host} pid {node.pid}) is gone: {note}",
    )


# --- what follows for its steps ---------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """How an attempt that its agent did not report ended."""

    ending: Ending
    failure: Failure
    error: StepFailed
    place: str
    """What a fingerprint has in place of a place in the code."""


def lost(node: str, death: str) -> Loss:
    error = StepLost(f"agent {node} was lost: {death}")
    return Loss(Ending.LOST, Failure.LOST, error, "agent lost")


def overdue() -> Loss:
    error = StepTimeout("the attempt did not complete in time, and its agent did not report that")
    return Loss(Ending.TIMED_OUT, Failure.TIMEOUT, error, "attempt overdue")


def _remedy_of(
    node: str, random: chance.Random, config: Config, step: LostStep, death: str, now: float
) -> Remedy:
    return remedy_of(lost(node, death), random, config, step, now)


def remedy_of(loss: Loss, random: chance.Random, config: Config, step: LostStep, now: float) -> Remedy:
    """Decide what happens to a step whose attempt ended by this loss: another attempt, failure, or quarantine."""
    verdict = policy.decide(
        policy.policy_of(step.retry, step.attempts_max),
        loss.failure,
        step,
        error=loss.error,
        elapsed_s=now - step.issued_at,
        random=random,
        config=config,
    )
    kind = name_of(type(loss.error))
    error_json = json.dumps({"type": kind, "message": str(loss.error), "ending": loss.ending})
    losses, timeouts = int(loss.failure is Failure.LOST), int(loss.failure is Failure.TIMEOUT)
    if isinstance(verdict, policy.RetryAfter):
        return Remedy(step, loss.ending, StepState.READY, verdict.after_s, error_json, losses, timeouts)
    if isinstance(verdict, policy.GiveUp):
        return Remedy(step, loss.ending, StepState.FAILED, 0.0, error_json, losses, timeouts)
    fingerprint = policy.fingerprint(step.name, kind, loss.place)
    entry = Quarantined(step.run_id, step.n, fingerprint, step.name, kind, loss.place, now)
    return Remedy(step, loss.ending, StepState.READY, 0.0, error_json, losses, timeouts, entry)
