"""`up`, `scheduler`, `agent` and `supervisor`: each is a node that hosts roles until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import wraps
from typing import Any, NamedTuple, get_args

import click
import msgspec

from holdfast.addresses import shown_address
from holdfast.client import Holdfast
from holdfast.commands import program
from holdfast.commands.errors import DONE, PIPE_CLOSED, NotLoadable
from holdfast.commands.event_loop import leaving, run_long
from holdfast.commands.options import (
    Command,
    alerts_option,
    app_option,
    asked_namespaces,
    command,
    label_option,
)
from holdfast.config import DEFAULT, Config, OnBug
from holdfast.errors import InvalidSettings, StoreError, StoreUnreachable
from holdfast.model import ROLES, SERVER, LeaderLease
from holdfast.namespaces import ALL, Namespaces
from holdfast.pool import badge
from holdfast.terminal import output
from holdfast.terminal.node_view import NodeStatus, NodeView, view_for
from holdfast.workflow import registry

OPEN_WAIT_S = 30.0
"""How long a node that starts waits for a database that cannot be reached. This is longer than most restarts, and short
enough for a person who watches to see that the address is wrong."""
OPEN_LOOK_S = 0.3
LOOPBACK = "127.0.0.1"
STATUS_EVERY_S = 1.0
LIMITS_EVERY_S = 0.2
"""How often to look whether the process has reached one of its limits."""
STATUS_SHARE = 20
"""Counting the runs of a large store takes a while. The pause after it is this many times as long."""


files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE…")
steps_option = click.option(
    "--steps-max",
    type=click.IntRange(min=1),
    default=DEFAULT.steps_max,
    show_default=True,
    metavar="N",
    help="Run at most this many `async def` steps at once.",
)
threads_option = click.option(
    "--threads-max",
    type=click.IntRange(min=1),
    default=DEFAULT.threads_max,
    show_default=True,
    metavar="N",
    help="Run at most this many `def` steps at once, each in a thread.",
)


max_steps_option = click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Drain and leave after this many attempts, so that a fresh process can be started.",
)
max_memory_option = click.option(
    "--max-memory",
    "max_memory_mb",
    type=click.IntRange(min=1),
    metavar="MB",
    help="Drain and leave when the process uses more memory than this.",
)


log_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="HOLDFAST_LOG_FORMAT",
    show_envvar=True,
    help="Write the log to standard error as text or as JSON, one object a line. [default: text]",
)
keep_option = click.option(
    "--keep-days",
    type=click.FloatRange(min=0),
    metavar="N",
    help="Remove runs that ended more than this many days ago. [default: keep them]",
)


on_bug_option = click.option(
    "--on-bug",
    type=click.Choice(get_args(OnBug)),
    default=DEFAULT.on_bug,
    show_default=True,
    help="What to do with a run whose workflow code raises: undo what it did, or hold it. @workflow(on_bug=…) overrides it.",
)


class Listen(NamedTuple):
    """Where to answer HTTP."""

    host: str
    port: int
    tls_cert: str | None
    tls_key: str | None
    oidc: str | None


def listen_options(port: int | None, purpose: str) -> Callable[[Command], Command]:
    """Add the options that say where to answer HTTP. The command gets them as one `listen`, which is None without a
    port."""

    def declare(fn: Command) -> Command:
        @wraps(fn)
        def packed(**given: Any) -> Any:
            found = {name: given.pop(name) for name in Listen._fields}
            if (found["tls_cert"] is None) != (found["tls_key"] is None):
                raise click.UsageError("--tls-cert and --tls-key belong together: give both")
            if found["port"] is not None:
                return fn(listen=Listen(**found), **given)
            if found["tls_cert"] is not None or found["host"] != LOOPBACK:
                raise click.UsageError(
                    "--host, --tls-cert and --tls-key are about answering HTTP: give --port, too"
                )
            return fn(listen=None, **given)

        options = (
            click.option(
                "--port",
                type=click.IntRange(0, 65535),
                default=port,
                show_default=port is not None,
                metavar="PORT",
                help=f"{purpose} 0 takes any that is free.",
            ),
            click.option(
                "--host",
                default=LOOPBACK,
                show_default=True,
                metavar="ADDRESS",
                help="Listen on this address. Any but this host's own needs a token: see `holdfast tokens`.",
            ),
            click.option(
                "--tls-cert",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Speak TLS with this certificate.",
            ),
            click.option(
                "--tls-key",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="The key of the certificate.",
            ),
            click.option(
                "--oidc",
                envvar="HOLDFAST_OIDC",
                show_envvar=True,
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Also take tokens of the issuer in the table [oidc] of this TOML or JSON file.",
            ),
        )
        decorated: Command = packed
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return declare


@command(namespace="many", needs_database=True)
@files_argument
@label_option
@steps_option
@threads_option
@max_steps_option
@max_memory_option
@alerts_option
@keep_option
@log_option
@on_bug_option
@app_option
@listen_options(None, "Also answer HTTP on this port, as `holdfast server` does.")
def up(
    *,
    files: tuple[str, ...],
    labels: tuple[str, ...],
    steps_max: int,
    threads_max: int,
    max_steps: int | None,
    max_memory_mb: int | None,
    alerts: str | None,
    keep_days: float | None,
    log_format: str | None,
    on_bug: OnBug,
    app: str | None,
    listen: Listen | None,
    store: str,
    as_json: bool,
) -> int:
    """Host all roles in one process until it is stopped.

    \b
    holdfast up app.py

    SIGTERM and Ctrl-C let it drain: steps that run get 30 s to finish and are then handed back, which costs no attempt.
    A second signal ends it at once. A node that loses its lease (because its host was asleep, or the store was away for
    longer than the lease) stops its steps, which others take up, and joins again by itself.
    """
    config = Config(steps_max=steps_max, threads_max=threads_max, keep_days=keep_days, on_bug=on_bug)
    limits = ProcessLimits(max_steps, max_memory_mb)
    return _serve(
        files,
        ROLES if listen is None else (*ROLES, SERVER),
        store,
        as_json,
        labels=labels,
        config=config,
        limits=limits,
        alerts=alerts,
        app=app,
        log_format=log_format,
        listen=listen,
    )


@command(namespace="many", needs_database=True)
@files_argument
@log_option
@on_bug_option
@app_option
def scheduler(
    files: tuple[str, ...],
    log_format: str | None,
    on_bug: OnBug,
    app: str | None,
    store: str,
    as_json: bool,
) -> int:
    """Host a Scheduler until it is stopped.

    \b
    holdfast scheduler app.py

    It runs workflow code and executes no step. Start two: one takes over when the other goes.
    """
    config = Config(on_bug=on_bug)
    return _serve(files, ("scheduler",), store, as_json, config=config, app=app, log_format=log_format)


@command(namespace="many")
@files_argument
@label_option
@steps_option
@threads_option
@max_steps_option
@max_memory_option
@log_option
@app_option
def agent(
    *,
    files: tuple[str, ...],
    labels: tuple[str, ...],
    steps_max: int,
    threads_max: int,
    max_steps: int | None,
    max_memory_mb: int | None,
    log_format: str | None,
    app: str | None,
    store: str,
    as_json: bool,
) -> int:
    """Host an Agent until it is stopped.

    \b
    holdfast agent app.py --label gpu

    It executes the steps of these files. A step that needs labels goes only to an agent that has them all. Start as
    many as there is work. When it reaches --max-steps or --max-memory it drains and exits with code 0; let a process
    manager start it again.
    """
    config = Config(steps_max=steps_max, threads_max=threads_max)
    limits = ProcessLimits(max_steps, max_memory_mb)
    of_pool, pipe = badge.take_from_environment()
    about = {} if of_pool is None else {"pool": msgspec.to_builtins(of_pool)}
    return _serve(
        files,
        ("agent",),
        store,
        as_json,
        labels=labels,
        config=config,
        limits=limits,
        about=about,
        pipe=pipe,
        app=app,
        log_format=log_format,
    )


@command(namespace="none", needs_database=True)
@alerts_option
@keep_option
@log_option
def supervisor(
    alerts: str | None, keep_days: float | None, log_format: str | None, store: str, as_json: bool
) -> int:
    """Host a Supervisor until it is stopped.

    \b
    holdfast supervisor

    It reclaims the steps and runs of dead processes, ends what is overdue and sends alerts. It needs no code of yours.
    Start two: one leads, and the other takes over when that one goes.
    """
    config = Config(keep_days=keep_days)
    return _serve((), ("supervisor",), store, as_json, config=config, alerts=alerts, log_format=log_format)


@command(namespace="many", needs_database=True)
@click.argument("files", nargs=-1, metavar="[FILE…]")
@listen_options(8080, "Listen on this port.")
@log_option
@app_option
def server(
    *,
    files: tuple[str, ...],
    listen: Listen,
    log_format: str | None,
    app: str | None,
    store: str,
    as_json: bool,
) -> int:
    """Answer HTTP until it is stopped.

    \b
    holdfast server --port 8080
    curl http://127.0.0.1:8080/v1/runs

    Programs start runs and follow them, and operators steer them, by HTTP. It needs no code of yours: inputs are checked
    by what schedulers have declared. With FILE, the types in it check them. Until the first token is made, it answers
    to this host alone (see `holdfast tokens`). Start as many as you like on one store. SIGTERM lets it leave: whoever
    waits is answered, and requests that are being answered get 10 s.
    """
    return _serve(files, (SERVER,), store, as_json, app=app, log_format=log_format, listen=listen)


def _serve(
    files: Sequence[str],
    roles: Sequence[str],
    store: str,
    as_json: bool,
    *,
    labels: Sequence[str] = (),
    config: Config = DEFAULT,
    limits: ProcessLimits | None = None,
    alerts: str | None = None,
    about: dict[str, Any] | None = None,
    pipe: int | None = None,
    app: str | None = None,
    log_format: str | None = None,
    listen: Listen | None = None,
) -> int:
    with output.stdout_kept(as_json) as stdout:
        for file in files:
            program.load(file)
        if "scheduler" in roles and not registry.workflows:
            raise NotLoadable(
                f"{', '.join(files)}: there is no workflow here: mark an async function with @workflow"
            )
        if "agent" in roles and "scheduler" not in roles and not registry.steps:
            raise NotLoadable(f"{', '.join(files)}: there is no step here: mark a function with @step")
        # A supervisor alone works for all namespaces, whatever the environment names.
        namespaces = Namespaces((ALL,)) if tuple(roles) == ("supervisor",) else asked_namespaces(store)
        hf = Holdfast(
            store, roles=roles, labels=labels, config=config, alerts=alerts, app=app, namespace=namespaces
        )
        hf.about = {"files": list(files), **(about or {})}
        view = view_for(stdout if as_json else None, lambda: hf.node_id, log_format=log_format)
        if pipe is not None:
            view.wants_status = False  # the pool shows the status of its agents
        return run_long(_until_stopped(hf, roles, view, limits or ProcessLimits(), pipe, listen))


async def _until_stopped(
    hf: Holdfast,
    roles: Sequence[str],
    view: NodeView,
    limits: ProcessLimits,
    pipe: int | None,
    listen: Listen | None,
) -> int:
    with leaving() as leave, view:
        if not await opened(hf, view, leave.asked):
            return PIPE_CLOSED if leave.is_unread else DONE
        view.say("up", f"node {hf.node.id} hosts {', '.join(roles)} on {shown_address(hf.url)}")
        door = AsyncExitStack()
        stops: list[asyncio.Future[Any]] = [asyncio.ensure_future(leave.asked.wait())]
        if any(limits):
            stops.append(asyncio.ensure_future(limits.reached(hf, view)))
        if pipe is not None:
            stops.append(asyncio.ensure_future(_orphaned(pipe, view)))
        try:
            if listen is not None:
                url = await door.enter_async_context(_listening(hf, listen))
                view.say("listening", f"listening on {url} (the dashboard, and the API under /v1)")
            await _show_status(hf, view, stops)
            view.say(
                "draining",
                "draining: steps that run get time to finish; a second signal ends the process at once",
            )
        finally:
            for stop in stops:
                stop.cancel()
            await door.aclose()
            await hf.close(drain_s=None)
        view.say("down", "down")
    return PIPE_CLOSED if leave.is_unread else DONE


async def opened(hf: Holdfast, view: NodeView, asked_to_leave: asyncio.Event) -> bool:
    """Open the store. Wait for a database that cannot be reached yet: it may start together with this process, or be
    restarting. Return False if this process is asked to leave meanwhile."""
    give_up_at = hf.environment.monotonic() + OPEN_WAIT_S
    leaves = asyncio.ensure_future(asked_to_leave.wait())
    said = ""
    while not leaves.done():
        try:
            await hf.open()
        except StoreUnreachable as error:
            if hf.environment.monotonic() > give_up_at:
                raise
            if not said:
                said = f"{error}; trying again for {OPEN_WAIT_S:.0f} s"
                view.say("waiting", said, wrong=True)
            await asyncio.wait([leaves], timeout=OPEN_LOOK_S)
        else:
            leaves.cancel()
            return True
    return False


def _listening(hf: Holdfast, listen: Listen) -> AbstractAsyncContextManager[str]:
    try:
        from holdfast.http.listener import Address, serving  # noqa: PLC0415  an optional dependency
    except ModuleNotFoundError as missing:
        raise InvalidSettings("a server needs its libraries: pip install 'holdfast[server]'") from missing
    return serving(hf, hf.desk, Address(*listen))


async def _orphaned(pipe: int, view: NodeView) -> None:
    """Wait until the pool of this agent is gone, and say so."""
    await badge.pool_is_gone(pipe)
    view.say(
        "orphaned",
        "the pool of this agent is gone, and nobody would replace the agent: it leaves",
        wrong=True,
    )


async def _show_status(hf: Holdfast, view: NodeView, stops: Sequence[asyncio.Future[Any]]) -> None:
    """Show the status now and then, until one of `stops` is done."""
    monotonic = hf.environment.monotonic
    begun, counted, counted_at = monotonic(), hf.node.writer.operations, monotonic()
    pause_s = 0.0
    while not any(stop.done() for stop in stops):
        await asyncio.wait(stops, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        asked, pause_s = monotonic(), STATUS_EVERY_S
        if hf.node.gone is not None:
            raise hf.node.gone
        if not view.wants_status:
            continue
        try:
            leader, runs = (None, {}) if hf.is_remote else await _facts(hf)
        except StoreError as error:
            view.trouble(str(error))
            continue
        operations, at = hf.node.writer.operations, monotonic()
        rate = (operations - counted) / max(at - counted_at, 0.001)
        counted, counted_at = operations, at
        pause_s = max(STATUS_EVERY_S, (at - asked) * STATUS_SHARE)
        lead = (
            "through a server"
            if hf.is_remote
            else "nobody leads"
            if leader is None
            else "leads"
            if leader[0] == hf.node.id
            else "another node leads"
        )
        view.status(NodeStatus(at - begun, output.by_state(runs), rate, lead))


async def _facts(hf: Holdfast) -> tuple[LeaderLease | None, dict[str, int]]:
    return await hf.store.leader.leader(), await hf.store.reads.runs_by_state()


class ProcessLimits(NamedTuple):
    """How much a process may do or use before it leaves. Whatever its steps leaked is freed with the process."""

    max_steps: int | None = None
    max_memory_mb: int | None = None

    async def reached(self, hf: Holdfast, view: NodeView) -> None:
        """Wait until one of the limits is reached, and say so."""
        while True:
            done = hf.node.agent.tally.done if hf.node.agent is not None else 0
            if self.max_steps is not None and done >= self.max_steps:
                return view.say("limit", f"{done:,} attempts done: this process leaves, to be started afresh")
            used_mb = hf.environment.memory_mb()
            if self.max_memory_mb is not None and used_mb > self.max_memory_mb:
                return view.say("limit", f"{used_mb:,.0f} MB used: this process leaves, to be started afresh")
            await hf.environment.sleep(LIMITS_EVERY_S)
