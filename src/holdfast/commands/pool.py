"""`pool`: agents on this host, as many as there is work, until it is told to stop."""

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
from holdfast.commands.options import app_option, command, label_option
from holdfast.commands.up import (
    files_argument,
    max_memory_option,
    max_steps_option,
    steps_option,
    threads_option,
)
from holdfast.config import DEFAULT, Config
from holdfast.interpreters import python
from holdfast.node import POOL
from holdfast.pool.fleet import StopMode
from holdfast.pool.local import LocalFleet
from holdfast.pool.pool import Pool, PoolEvent
from holdfast.pool.watch import Watch
from holdfast.terminal import output, streams, wording
from holdfast.terminal.node_view import NodeView, view_for


@command()
@files_argument
@click.option(
    "--min",
    "least",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Agents there always are.",
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(min=1),
    metavar="N",
    help="Agents there are at most, but for one more while code is replaced. [default: one per core, or --min]",
)
@click.option("--name", metavar="NAME", help="What `holdfast agents` calls it. [default: the first file]")
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
    help="Start more when a step has waited so many seconds for an agent.",
)
@click.option(
    "--shrink-after",
    "idle_s",
    type=click.FloatRange(min=0),
    default=DEFAULT.pool_idle_s,
    show_default=True,
    metavar="S",
    help="Let one go when fewer would have done for so many seconds.",
)
@label_option
@steps_option
@threads_option
@max_steps_option
@max_memory_option
@app_option
def pool(*, files: tuple[str, ...], store: str, as_json: bool, **given: Any) -> int:
    """Keep agents at strength on this host until stopped.

    \b
    holdfast pool app.py --min 1 --max 8

    It starts `holdfast agent` processes: more when steps wait for one, fewer when they have little to do, new ones for those that end; rarely, with an alert, when they do not stay. SIGHUP, or a change of the code, replaces them one
    after another: an old one leaves when a new one is at work.

    SIGTERM and Ctrl-C let all of them drain, which costs no attempt; a second one ends them at once. If the pool itself
    is killed, its agents drain and leave. Exit code 2 when the first agent of all cannot start.
    """
    asked = PoolWanted.of(files, **given)
    for file in files:
        if (file.endswith(".py") or "/" in file) and not Path(file).is_file():
            raise NotLoadable(f"there is no file {file}: check the path")
    with output.stdout_kept(as_json) as stdout:
        return run_long(_keep(store, asked, view_for(stdout if as_json else None), as_json=as_json))


class PoolWanted(NamedTuple):
    """A pool as the command line asks for it."""

    files: tuple[str, ...]
    least: int
    most: int
    name: str
    watch: bool
    config: Config
    options: list[str]
    """For the agents."""

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
    ) -> PoolWanted:
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


async def _keep(url: str, asked: PoolWanted, shown: NodeView, *, as_json: bool) -> int:
    wake = asyncio.Event()
    # The address may carry a password, which does not belong on a command line.
    fleet = LocalFleet(
        [
            *python("-m", "holdfast", "agent"),
            *asked.files,
            *asked.options,
            *(["--json"] if as_json else []),
        ],
        {**os.environ, "HOLDFAST_STORE": url},
        lambda member, errors, line: shown.pass_on(f"agent {member}", line, errors=errors),
        wake.set,
    )

    def show(event: PoolEvent) -> None:
        if event.event == "store":
            shown.trouble(event.message)
        else:
            shown.say(event.event, event.message, wrong=event.wrong, more=event.more)

    hf = Holdfast(url, roles=(POOL,))
    kept = Pool(
        lambda: hf.store,
        fleet,
        name=asked.name,
        least=asked.least,
        most=asked.most,
        environment=hf.environment,
        config=asked.config,
        on_event=show,
    )
    hf.about, hf.pulse = {"pool": {"name": asked.name}}, kept.pulse
    with shown:
        await hf.open()
        try:
            shown.say(
                "up",
                f"pool {asked.name}: {asked.least} to {asked.most} agents on {shown_address(url)}",
            )
            await _until_over(hf, kept, asked, shown, wake)
        finally:
            await fleet.close()
            await hf.close()
        if kept.hopeless is not None:
            raise NotLoadable(
                f"agents cannot start here: the first one ended {kept.hopeless}; see what it said above"
            )
        shown.say("down", "down")
    return DONE


async def _until_over(
    hf: Holdfast, kept: Pool, asked: PoolWanted, shown: NodeView, wake: asyncio.Event
) -> None:
    loop, signals = asyncio.get_running_loop(), _Signals(kept, shown, wake)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.leave)
    loop.add_signal_handler(signal.SIGHUP, signals.renew)
    streams.when_unread = kept.leave
    watch = Watch(asked.files) if asked.watch else None
    monotonic = hf.environment.monotonic
    begun = watched_at = monotonic()
    try:
        while not kept.is_over:
            await kept.tick()
            if kept.hopeless is not None:
                kept.leave()
            if watch is not None and monotonic() - watched_at > asked.config.code_look_s:
                watched_at = monotonic()
                if changed := await hf.environment.blocking(watch.look):
                    kept.renew(f"{output.shown_path(changed)} has changed")
            if shown.wants_status:
                shown.status(PoolStatus.of(kept, monotonic() - begun))
            if not kept.is_over:
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), asked.config.pool_look_s)
                wake.clear()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


class _Signals:
    def __init__(self, kept: Pool, shown: NodeView, wake: asyncio.Event) -> None:
        self._kept, self._shown, self._wake = kept, shown, wake
        self._asked = 0
        self._hurrying: list[asyncio.Task[None]] = []

    def leave(self) -> None:
        self._asked += 1
        if self._asked == 1:
            self._kept.leave()
            self._shown.say(
                "draining",
                "draining: agents finish or hand back what they hold; a second signal ends them at once",
            )
        else:
            how = StopMode.HURRY if self._asked == 2 else StopMode.KILL
            self._shown.say("hurry", "agents are ended at once", wrong=True)
            self._hurrying.append(asyncio.create_task(self._kept.hurry(how)))
        self._wake.set()

    def renew(self) -> None:
        self._kept.renew("SIGHUP")
        self._wake.set()


class PoolStatus(NamedTuple):
    up_s: float
    at_work: int
    wanted: int
    limits: tuple[int, int]
    coming: int
    leaving: int
    held: int
    ready: int | None
    waited_s: float
    troubled: bool

    @classmethod
    def of(cls, kept: Pool, up_s: float) -> PoolStatus:
        strength, load = kept.strength, kept.load
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
        parts.append((f" · {wording.counted(self.held, 'step')} running", ""))
        if self.ready is None:
            parts.append((" · nothing known of what waits", "yellow"))
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
            "steps_held": self.held,
            "ready": self.ready,
            "waited_s": round(self.waited_s, 3),
            "troubled": self.troubled,
        }

    def mark(self) -> object:
        return self.at_work, self.wanted, self.coming, self.leaving, bool(self.ready), self.troubled
