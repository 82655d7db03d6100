"""What happens when a node dies, or an attempt does not end.

A node is dead when its lease ran out or its process is known to be gone. Its runs become ownerless, so that another scheduler
claims them; its steps are taken from it, and what follows for each is decided by the same policy by which agents decide. Whatever
the node still writes finds no row, because both fences were raised. An attempt whose agent lives and did not end it in time
(a hung thread, a stopped process) is taken from it in the same way.

Who is dead and what follows is decided here, purely; the store asks when it has the rows locked.
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
    LEFT = "it left and still had something"
    """A process that was paused claimed something after it had been reclaimed."""


async def reclaim_lost(store: Leader, epoch: int, environment: Environment, config: Config) -> int:
    """Reclaim what dead nodes have. Bounded: a node with more than `claim_max` rows is finished by the next passes."""
    reclaimed = 0
    for node in await store.suspects():
        remedy = partial(_remedy_of, node, environment.random, config)
        done = await store.reclaim(epoch, node, death_of, remedy, offline, config.claim_max)
        if done is None:
            break  # deposed: the new leader does it
        reclaimed += done.runs + done.steps + done.is_retired
    return reclaimed


async def end_overdue(store: Leader, epoch: int, environment: Environment, config: Config) -> int:
    """Time out attempts, after a grace in which their agent itself should have."""
    remedy = partial(remedy_of, overdue(), environment.random, config)
    return await store.end_overdue(epoch, config.timeout_grace_s, remedy, config.claim_max)


# --- who is dead ------------------------------------------------------------------------------------------------------


def death_of(node: SeenNode | None, now: float) -> Death | None:
    """Why the node is dead; None while it lives. A lost connection is no death."""
    if node is None or node.retired_at is not None:
        return Death.LEFT
    if node.gone_at is not None:
        return Death.GONE
    return Death.LAPSED if node.lease_until < now else None


def offline(node: SeenNode, note: str) -> NewAlert:
    """What people are told. One alert per host, however many of its processes go."""
    return NewAlert(
        AlertKind.AGENT_OFFLINE,
        Level.WARNING,
        f"{AlertKind.AGENT_OFFLINE}:{node.host}",
        f"node {node.id} ({node.roles}; {node.host} pid {node.pid}) is gone: {note}",
    )


# --- what follows for its steps ---------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """How attempts ended that their agents did not end."""

    ending: Ending
    failure: Failure
    error: StepFailed
    place: str
    """What stands for the place in the code, in a fingerprint."""


def lost(node: str, death: str) -> Loss:
    error = StepLost(f"agent {node} was lost: {death}")
    return Loss(Ending.LOST, Failure.LOST, error, "agent lost")


def overdue() -> Loss:
    error = StepTimeout("the attempt did not complete in time, and its agent did not say so")
    return Loss(Ending.TIMED_OUT, Failure.TIMEOUT, error, "attempt overdue")


def _remedy_of(
    node: str, random: chance.Random, config: Config, step: LostStep, death: str, now: float
) -> Remedy:
    return remedy_of(lost(node, death), random, config, step, now)


def remedy_of(loss: Loss, random: chance.Random, config: Config, step: LostStep, now: float) -> Remedy:
    """What becomes of a step whose attempt ended like this."""
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
    told = json.dumps({"type": kind, "message": str(loss.error), "ending": loss.ending})
    losses, timeouts = int(loss.failure is Failure.LOST), int(loss.failure is Failure.TIMEOUT)
    if isinstance(verdict, policy.RetryAfter):
        return Remedy(step, loss.ending, StepState.READY, verdict.after_s, told, losses, timeouts)
    if isinstance(verdict, policy.GiveUp):
        return Remedy(step, loss.ending, StepState.FAILED, 0.0, told, losses, timeouts)
    fingerprint = policy.fingerprint(step.name, kind, loss.place)
    entry = Quarantined(step.run_id, step.n, fingerprint, step.name, kind, loss.place, now)
    return Remedy(step, loss.ending, StepState.READY, 0.0, told, losses, timeouts, entry)
