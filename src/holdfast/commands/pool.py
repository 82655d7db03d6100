"""`pool`: runs agents on this host, as many as there is work, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from holdfast.addresses import shown_address
from holdfast.client import Holdfast
from holdfast.commands.errors import DONE, NotLoadable
from holdfast.commands.event_loop import run_long
from holdfast.commands.options import (
    app_option,
    chosen_namespaces,
    command,
    label_option,
)
from holdfast.commands.up import (
    files_argument,
    log_option,
    max_memory_option,
    max_steps_option,
    opened,
    steps_option,
    threads_option,
)
from holdfast.config import DEFAULT, Config
from holdfast.interpreters import python
from holdfast.model import POOL
from holdfast.pool.fleet import StopMode
from holdfast.pool.local import LocalFleet
from holdfast.pool.pool import Pool, PoolEvent
from holdfast.pool.watch import CodeWatch
from holdfast.terminal import output, streams, wording
from holdfast.terminal.node_view import NodeView, view_for


@command(namespace="many", needs_database=True)
@files_argument
@click.option(
    "--min",
    "least",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Keep at least this many agents.",
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep at most this many agents, and one more while code is replaced. "
    "[default: one per core, or --min if that is more]",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Give the pool this name, which `holdfast agents` shows. [default: that of the first file]",
)
@click.option(
    "--watch/--no-watch",
    default=True,
    show_default=True,
    help="Replace the agents one after another when a Python file beside FILE changes.",
)
@click.option(
    "--grow-after",
    "wait_s",
    type=click.FloatRange(min=0),
    default=DEFAULT.pool_wait_s,
    show_default=True,
    metavar="S",
    help="Start more agents when a step has waited this many seconds for one.",
)
@click.option(
    "--shrink-after",
    "idle_s",
    type=click.FloatRange(min=0),
    default=DEFAULT.pool_idle_s,
    show_default=True,
    metavar="S",
    help="Stop an agent when fewer would have been enough for this many seconds.",
)
@label_option
@steps_option
@threads_option
@max_steps_option
@max_memory_option
@log_option
@app_option
def pool(*, files: tuple[str, ...], log_format: str | None, store: str, as_json: bool, **given: Any) -> int:
    """Run as many agents on this host as there is work.

    \b
    holdfast pool app.py --min 1 --max 8

    It starts `holdfast agent` processes: more when steps wait for an agent, fewer when the agents have little to do,
    and a new one for each that ends. If agents keep ending soon after they start, there is an alert, and the pool
    starts them only now and then. SIGHUP, or a change of the code, replaces the agents one after another: an old one
    leaves when a new one is at work.

    SIGTERM and Ctrl-C let all agents drain, which costs no attempt; a second signal ends them at once. If the pool
    itself is killed, its agents drain and leave. The exit code is 2 if the very first agent cannot start.
    """
    settings = PoolSettings.of(files, **given)
    for file in files:
        if (file.endswith(".py") or "/" in file) and not Path(file).is_file():
            raise NotLoadable(f"there is no file {file}: check the path")
    with output.stdout_kept(as_json) as stdout:
        if log_format is not None:
            settings.options.append(f"--log-format={log_format}")
        settings.options.extend(f"--namespace={name}" for name in chosen_namespaces().names)
        hf = Holdfast(store, roles=(POOL,), namespace=chosen_namespaces())
        view = view_for(stdout if as_json else None, lambda: hf.node_id, log_format=log_format)
        return run_long(_run_pool(hf, settings, view, as_json=as_json))


class PoolSettings(NamedTuple):
    """What the command line says about the pool."""

    files: tuple[str, ...]
    least: int
    most: int
    name: str
    watch: bool
    config: Config
    options: list[str]
    """Options that the pool hands to its agents."""

    @classmethod
    def of(
        cls,
        files: tuple[str, ...],
        *,
        least: int,
        most: int | None,
        name: str | None,
        watch: bool,
        wait_s: float,
        idle_s: float,
        labels: Sequence[str],
        steps_max: int,
        threads_max: int,
        max_steps: int | None,
        max_memory_mb: int | None,
        app: str | None,
    ) -> PoolSettings:
        most = most or max(least, os.cpu_count() or 1)
        if most < least:
            raise click.UsageError(f"--max {most} is less than --min {least}")
        options = [f"--label={label}" for label in labels]
        options += [f"--steps-max={steps_max}", f"--threads-max={threads_max}"]
        options += [] if max_steps is None else [f"--max-steps={max_steps}"]
        options += [] if max_memory_mb is None else [f"--max-memory={max_memory_mb}"]
        options += [] if app is None else [f"--app={app}"]
        config = Config(pool_wait_s=wait_s, pool_idle_s=idle_s)
        return cls(files, least, most, name or Path(files[0]).stem, watch, config, options)


async def _run_pool(hf: Holdfast, settings: PoolSettings, view: NodeView, *, as_json: bool) -> int:
    wake = asyncio.Event()
    # Agents get the address from their environment: it may contain a password, which does not belong on a command line.
    fleet = LocalFleet(
        [
            *python("-m", "holdfast", "agent"),
            *settings.files,
            *settings.options,
            *(["--json"] if as_json else []),
        ],
        {**os.environ, "HOLDFAST_STORE": hf.url},
        lambda member, errors, line: view.pass_on(f"agent {member}", line, errors=errors),
        wake.set,
    )

    def show(event: PoolEvent) -> None:
        if event.event == "store":
            view.trouble(event.message)
        else:
            view.say(event.event, event.message, wrong=event.wrong, more=event.more)

    pool = Pool(
        lambda: hf.store,
        fleet,
        name=settings.name,
        least=settings.least,
        most=settings.most,
        environment=hf.environment,
        config=settings.config,
        on_event=show,
    )
    hf.about, hf.pulse = {"pool": {"name": settings.name}}, pool.pulse
    with view:
        await opened(hf, view, asyncio.Event())  # a signal ends it at once: it has no agents yet
        try:
            view.say(
                "up",
                f"pool {settings.name}: {settings.least} to {settings.most} agents on {shown_address(hf.url)}",
            )
            await _until_over(hf, pool, settings, view, wake)
        finally:
            await fleet.close()
            await hf.close()
        if pool.hopeless is not None:
            raise NotLoadable(
                f"agents cannot start here: the first one ended {pool.hopeless}; see what it said above"
            )
        view.say("down", "down")
    return DONE


async def _until_over(
    hf: Holdfast, pool: Pool, settings: PoolSettings, view: NodeView, wake: asyncio.Event
) -> None:
    loop, signals = asyncio.get_running_loop(), _Signals(pool, view, wake)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.leave)
    loop.add_signal_handler(signal.SIGHUP, signals.renew)
    streams.when_unread = pool.leave
    watch = CodeWatch(settings.files) if settings.watch else None
    monotonic = hf.environment.monotonic
    begun = watched_at = monotonic()
    try:
        while not pool.is_over:
            await pool.tick()
            if pool.hopeless is not None:
                pool.leave()
            if watch is not None and monotonic() - watched_at > settings.config.code_look_s:
                watched_at = monotonic()
                if changed := await hf.environment.blocking(watch.look):
                    pool.renew(f"{output.shown_path(changed)} has changed")
            if view.wants_status:
                view.status(PoolStatus.of(pool, monotonic() - begun))
            if not pool.is_over:
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), settings.config.pool_look_s)
                wake.clear()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


class _Signals:
    def __init__(self, pool: Pool, view: NodeView, wake: asyncio.Event) -> None:
        self._pool, self._view, self._wake = pool, view, wake
        self._asked = 0
        self._hurrying: list[asyncio.Task[None]] = []

    def leave(self) -> None:
        self._asked += 1
        if self._asked == 1:
            self._pool.leave()
            self._view.say(
                "draining",
                "draining: the agents finish or hand back their steps; a second signal ends them at once",
            )
        else:
            how = StopMode.HURRY if self._asked == 2 else StopMode.KILL
            self._view.say("hurry", "the agents are ended at once", wrong=True)
            self._hurrying.append(asyncio.create_task(self._pool.hurry(how)))
        self._wake.set()

    def renew(self) -> None:
        self._pool.renew("SIGHUP")
        self._wake.set()


class PoolStatus(NamedTuple):
    up_s: float
    at_work: int
    wanted: int
    limits: tuple[int, int]
    coming: int
    leaving: int
    running: int
    ready: int | None
    waited_s: float
    troubled: bool

    @classmethod
    def of(cls, pool: Pool, up_s: float) -> PoolStatus:
        strength, load = pool.strength, pool.load
        return cls(
            up_s,
            len(strength.at_work),
            strength.wanted,
            (strength.least, strength.most),
            sum(not member.came_up for member in strength.staying),
            sum(member.leaving_since is not None for member in strength.members),
            sum(member.assignments for member in strength.at_work),
            None if load is None else load.ready,
            0.0 if load is None else load.waited_s,
            strength.troubled_since is not None,
        )

    def words(self) -> list[tuple[str, str]]:
        least, most = self.limits
        short = self.at_work < self.wanted
        parts = [("●", "red" if self.troubled else "yellow" if short else "green")]
        parts.append((f" up {wording.span(self.up_s)} · ", ""))
        parts.append(
            (f"{self.at_work} of {wording.counted(self.wanted, 'agent')}", "yellow" if short else "cyan")
        )
        parts.append((f" ({least} to {most})", "bright_black"))
        for count, what in ((self.coming, "coming up"), (self.leaving, "draining")):
            if count:
                parts.append((f" · {count} {what}", "yellow"))
        parts.append((f" · {wording.counted(self.running, 'step')} running", ""))
        if self.ready is None:
            parts.append((" · what waits is not known", "yellow"))
        elif self.ready:
            parts.append(
                (f" · {self.ready:,} waiting, the oldest for {wording.span(self.waited_s)}", "yellow")
            )
        if self.troubled:
            parts.append((" · agents do not stay", "red"))
        return parts

    def fields(self) -> dict[str, Any]:
        return {
            "agents": self.at_work,
            "wanted": self.wanted,
            "coming_up": self.coming,
            "draining": self.leaving,
            "steps_held": self.running,
            "ready": self.ready,
            "waited_s": round(self.waited_s, 3),
            "troubled": self.troubled,
        }

    def mark(self) -> object:
        return self.at_work, self.wanted, self.coming, self.leaving, bool(self.ready), self.troubled
