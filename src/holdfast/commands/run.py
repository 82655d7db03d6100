"""`run` takes one run to its end in this process. `watch` shows in the same way a run that other processes carry."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.addresses import shown_address
from holdfast.client import DEFAULT_STORE, Holdfast
from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import Departure, leaving, run_long, run_quickly
from holdfast.commands.options import (
    RunRequest,
    chosen_namespaces,
    command,
    label_option,
    no_input,
    opened,
    run_argument,
    start_options,
)
from holdfast.commands.program import split
from holdfast.commands.watch import Follower, display_for, follow
from holdfast.errors import Conflict, StoreError, StoreFull, UnknownWorkflow
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import DEADLINE, DEFAULT_NAMESPACE, RunRow, RunState, StepKind
from holdfast.run import RunRows
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words
from holdfast.terminal.logs import Brief, log_to_errors, notice_full_disk
from holdfast.workflow import registry
from holdfast.workflow.workflow import Workflow

NEEDS_A_PERSON = frozenset({RunState.HELD, RunState.STUCK})
"""States that only a person can end. Waiting in this process would not help."""


class RunFollowed(NamedTuple):
    """How a command stopped following a run: the run's rows, the exit code, and why the run has not ended, if so."""

    view: RunRows
    code: int
    why: str = ""


@command(needs_database=True)
@start_options
@label_option
def run(request: RunRequest, labels: tuple[str, ...], store: str, as_json: bool) -> int:
    """Run a workflow to its end in this process, with live progress.

    \b
    holdfast run app.py:order --input '{"card": "tok_1", "pages": [1, 2]}' --id order-42

    The same id is the same run. After a crash, a kill or Ctrl-C, the same command goes on where the run stopped
    (--input need not be repeated). After the run has ended, it prints the recorded result. Progress goes to standard
    error, the result to standard output. The exit code is 0 if the run succeeded, 1 if it ended otherwise or waits for
    a person, and 2 if the call or the environment is wrong.
    """
    log_to_errors(logging.WARNING, Brief())
    with output.stdout_kept(as_json):
        workflow = request.workflow()
        raw = request.input(workflow)
        hf = Holdfast(store, labels=labels, app=request.app, namespace=chosen_namespaces())
        hf.about = {"files": [split(request.target)[0]]}
        ended = run_long(_run(workflow, raw, hf, as_json, request))
    return _answer(ended, as_json)


@command()
@run_argument
def watch(run_id: str, store: str, as_json: bool) -> int:
    """Follow a run until it ends.

    \b
    holdfast watch order-42

    Other processes carry the run; Ctrl-C stops only the watching. The exit codes are those of `holdfast run`.
    """
    return _answer(run_quickly(_watch(run_id, store, as_json)), as_json)


async def _watch(run_id: str, store: str, as_json: bool) -> RunFollowed:
    async with opened(store) as hf:
        with leaving() as leave, display_for(as_json) as display:
            view = await follow(hf, run_id, display, leave=leave)
        return RunFollowed(
            view, leave.code or _code(view.run), await hf.run(run_id).why() if leave.code else ""
        )


async def _run(
    workflow: Workflow[Any, Any], raw: bytes | None, hf: Holdfast, as_json: bool, request: RunRequest
) -> RunFollowed:
    with leaving() as leave:
        known = await _recorded(
            workflow, raw, Holdfast(hf.url, roles=(), app=request.app, namespace=hf.namespaces)
        )
        if known is not None and known.run.state in RUN_ENDED:
            return RunFollowed(known, _code(known.run))
        if known is None and raw is None:
            raw = no_input(workflow)
        notice_full_disk(leave.give_up)
        hf.only = {hf.stored(known.run.id)} if known else set()
        await hf.open(first=hf.stored(known.run.id) if known else None)
        try:
            started = known.run.id if raw is None and known else (await hf.start_raw(workflow, raw or b"")).id
            return await _carry(hf, started, leave, as_json, request.target)
        finally:
            await hf.close()


async def _recorded(workflow: Workflow[Any, Any], raw: bytes | None, looking: Holdfast) -> RunRows | None:
    """Return the run with this id, if there is one. It is compared with what the command asks for before this process
    hosts anything that could go on with it."""
    if workflow.id is None:
        return None
    async with looking:
        known = await looking.store.reads.run(looking.stored(workflow.id))
        if known is None:
            return None
        _check_same(looking.shown(known), workflow)
        if raw is not None:
            # The same input does not start the run a second time. Another input raises Conflict.
            await looking.start_raw(workflow, raw)
        return await looking.run(workflow.id).rows()


def _check_same(known: RunRow, workflow: Workflow[Any, Any]) -> None:
    if known.workflow != workflow.name:
        raise Conflict(
            f"run {known.id!r} is a run of {known.workflow}, not of {workflow.name}: choose another id"
        )
    if known.state not in RUN_ENDED and (known.workflow, known.version) not in registry.workflows:
        raise UnknownWorkflow(
            f"run {known.id!r} was started with version {known.version} of {known.workflow}, which is not in this file: "
            "keep the old version beside the new one until its runs have ended"
        )


async def _carry(hf: Holdfast, run_id: str, leave: Departure, as_json: bool, target: str) -> RunFollowed:
    """Go on with the run until it ends, needs a person, or this process is asked to leave."""
    until = RUN_ENDED | NEEDS_A_PERSON
    with display_for(as_json) as display:
        view = await follow(hf, run_id, display, leave=leave, until=until, nudge=_take_up(hf))
    if view.run.state in RUN_ENDED:
        return RunFollowed(view, _code(view.run))
    if view.run.state in NEEDS_A_PERSON:
        return RunFollowed(view, ENDED_OTHERWISE, await hf.run(run_id).why())
    if leave.signal is not None:
        print_words(
            "leaving: what runs here is handed back, which costs no attempt; a second Ctrl-C leaves at once",
            dim=True,
            err=True,
        )
    await hf.close()
    again = f"`{_same_command(target, run_id, hf)}` goes on with it"
    if leave.fault is not None:
        raise StoreFull(f"{leave.fault}; then {again}")
    with suppress(StoreError):
        async with Holdfast(hf.url, roles=(), namespace=hf.namespaces) as looking:
            view = await Follower(looking, run_id).look()
    return RunFollowed(view, leave.code, f"left before its end; {again}")


def _same_command(target: str, run_id: str, hf: Holdfast) -> str:
    """Return the command that goes on with the run, ready to be pasted. It does not show the password of the store."""
    words, url = ["holdfast", "run", target, "--id", run_id], hf.url
    if hf.namespace not in {DEFAULT_NAMESPACE, os.environ.get("HOLDFAST_NAMESPACE")}:
        words += ["--namespace", *hf.namespaces.names]
    if url != DEFAULT_STORE and url != os.environ.get("HOLDFAST_STORE"):
        words += ["--store", shown_address(url)]
    return shlex.join(words)


def _take_up(hf: Holdfast) -> Callable[[RunRows], Awaitable[None]]:
    """Return a function that claims the run at once if nobody owns it, because its last process was killed or left.
    This is faster than waiting for a bell. Once for each node is enough: later the run may wait in the store like any
    other."""
    taken_by = ""

    async def nudge(view: RunRows) -> None:
        nonlocal taken_by
        node = hf.node
        if taken_by == node.id or node.scheduler is None:
            return
        if view.run.owner == node.id or (
            view.run.owner is None and await node.claim_one(hf.stored(view.run.id))
        ):
            taken_by = node.id

    return nudge


def _code(run: RunRow) -> int:
    return DONE if run.state is RunState.SUCCEEDED else ENDED_OTHERWISE


def _answer(ended: RunFollowed, as_json: bool) -> int:
    """Print how it ended, and return the exit code. A script gets one object; a person gets what happened on standard
    error and the result on standard output."""
    run, steps = ended.view.run, ended.view.steps
    if as_json:
        output.print_json(output.result_object(run, steps, why=ended.why))
        return ended.code
    lasted = wording.run_took(run, run.finished_at or run.created_at)
    if run.state not in RUN_ENDED:
        line = f"{run.id}: {ended.why}"
    elif run.state is RunState.SUCCEEDED:
        line = f"{run.id} succeeded in {lasted}, {wording.counted(_done(ended.view), 'step')}"
    else:
        reason = wording.failure(run)
        line = f"{run.id} {run.state} after {lasted}{f': {reason}' if reason else ''}"
        if run.state is RunState.FAILED:
            line += f"\n`holdfast retry {shlex.quote(run.id)}` tries again and keeps what succeeded"
    print_words(f"{wording.GLYPHS[run.state]} ", wording.COLOURS[run.state], end=False, err=True)
    print_words(line, err=True)
    if run.state is RunState.SUCCEEDED:
        output.print_result(run.output)
    return ended.code


def _done(view: RunRows) -> int:
    return sum(
        1
        for step in view.steps
        if step.state == "succeeded" and step.key != DEADLINE and step.kind is not StepKind.MARKER
    )
