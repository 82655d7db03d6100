"""`bench`: measures how fast Holdfast is on this machine and this store."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from holdfast.addresses import shown_address
from holdfast.client import Holdfast
from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import leaving, run_long
from holdfast.errors import WrongState
from holdfast.store import dialect_of
from holdfast.terminal import output
from holdfast.terminal.lines import print_words
from holdfast.terminal.logs import Brief, log_to_errors

if TYPE_CHECKING:
    from holdfast.bench.figures import Figure

LETTERS = "ABCDEFGHIJK"


class Measured(NamedTuple):
    store: str
    quick: bool
    fsync_ms: float | None
    """How long one fsync takes in the working folder. None if the store is not a file."""
    figures: dict[str, list[Figure]]


def _letters(ctx: click.Context, parameter: click.Parameter, given: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(letter.strip().upper() for letter in given.split(",")))
    for letter in found:
        if letter not in LETTERS or len(letter) != 1:
            raise click.BadParameter(
                f"{letter!r} is not a measurement: name some of {','.join(LETTERS)}", ctx, parameter
            )
    return found


@click.command()
@click.option(
    "--store",
    metavar="URL",
    help="Measure on this empty store; the runs stay in it. [default: a new SQLite file in the working folder for "
    "each measurement, removed afterwards]",
)
@click.option(
    "--only",
    "letters",
    default=",".join(LETTERS),
    metavar="A,B,…",
    callback=_letters,
    help="Take only these measurements.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Measure in smaller and fewer rounds: all take about a minute, and are rougher.",
)
@click.option("--force", is_flag=True, help="Measure on a store that already has runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def bench(store: str | None, letters: tuple[str, ...], quick: bool, force: bool, as_json: bool) -> int:
    """Measure how fast Holdfast is on this machine and this store.

    \b
    holdfast bench --only A,B,D --store postgresql://holdfast@db.example/bench

    It measures ordinary runs through the public API, with fsync on. A run counts when its end is acknowledged, which is
    after its commit; at the end the store must have as many. The steps do nothing, so the figures are those of
    Holdfast, the store and the disk. Each rate is the median of several rounds, after one to warm up, with the smallest
    and the largest. 500 runs are in flight at a time.

    \b
    A  one-step runs: runs/s, all roles in one process
    B  ten-step runs, the steps one after the other: steps/s
    C  one run of 1,000 steps side by side and joined: seconds, start to result
    D  one one-step run at a time on an idle system: ms, start to result
    E  an agent's process is killed by SIGKILL while another is up: seconds until its step runs there,
       with default settings
    F  `holdfast up`: seconds until it takes work, resident memory with its children
    G  A and B with the agent in a process of its own
    H  D, and the memory of F, with 100,000 runs asleep in the store (--quick: 5,000)
    I  B with 5,000, 50,000 and 500,000 steps of history (--quick: a tenth of it); one run of 10,000 steps in sequence
       (--quick: 1,000), per step, beside runs of 100; and its replay after a kill, until its next step runs
    J  A and B with an agent behind a server, by G in the same minute; and D with it
    K  G's ten-step runs with 100 fair keys and a limit for each, by G in the same minute
    """
    log_to_errors(logging.ERROR, Brief())  # E kills an agent, so a warning that one is gone is expected
    with output.stdout_kept(as_json):
        measured = run_long(_until_done(store, letters, quick=quick, force=force))
    if isinstance(measured, int):
        return measured
    if as_json:
        output.print_json(_object(measured))
    else:
        _print(measured)
    return DONE


async def _until_done(
    url: str | None, letters: tuple[str, ...], *, quick: bool, force: bool
) -> Measured | int:
    """Return the figures, or the exit code if this process is asked to leave before. In both cases nothing is left
    running."""
    with leaving() as leave:
        work = asyncio.ensure_future(_measure(url, letters, quick=quick, force=force))
        asked = asyncio.ensure_future(leave.asked.wait())
        await asyncio.wait([work, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait([work])
            return leave.code
        return await work


async def _measure(url: str | None, letters: tuple[str, ...], *, quick: bool, force: bool) -> Measured:
    from holdfast.bench import plan  # noqa: PLC0415  only this command needs its workflows

    if url is not None:
        await _demand_empty(url, force=force)
    is_local = url is None or dialect_of(url).IS_LOCAL
    found = Measured(
        "sqlite" if url is None else shown_address(url),
        quick,
        plan.fsync_ms() if is_local else None,
        {},
    )
    with _progress() as say:
        async with aclosing(plan.measured(letters, url, quick=quick, say=say)) as measurements:
            async for letter, figures in measurements:
                found.figures[letter] = figures
    return found


async def _demand_empty(url: str, *, force: bool) -> None:
    async with Holdfast(url, roles=()) as hf:
        runs = sum((await hf.store.reads.runs_by_state()).values())
    if runs and not force:
        raise WrongState(
            f"the store has {runs:,} runs: name an empty one, or measure on this one anyway with --force"
        )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show progress on standard error: one line that changes at a terminal, or else one line for each measurement."""
    screen = output.screen(to_errors=True)
    if screen.is_terminal:
        with screen.status("") as status:
            yield status.update
        return
    announced = set()

    def say(words: str) -> None:
        letter = words[:1]
        if letter not in announced:
            announced.add(letter)
            print_words(words, err=True)

    yield say


def _object(measured: Measured) -> output.Object:
    return {
        "store": measured.store,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "quick": measured.quick,
        "fsync_ms": None if measured.fsync_ms is None else round(measured.fsync_ms, 3),
        "figures": {
            letter: {figure.name: figure.as_json() for figure in measured.figures[letter]}
            for letter in sorted(measured.figures)
        },
    }


def _print(measured: Measured) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415  rich takes longer to load than most commands to run
    from rich.table import Table  # noqa: PLC0415  the same

    from holdfast.terminal.screen import FILE_WIDTH  # noqa: PLC0415  the same

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("median", justify="right", no_wrap=True)
    table.add_column("smallest – largest", justify="right", no_wrap=True, style="bright_black")
    table.add_column("", overflow="fold")
    for letter in sorted(measured.figures):
        for number, figure in enumerate(measured.figures[letter]):
            spread = f"{_number(figure.low)} – {_number(figure.high)}" if figure.rounds > 1 else ""
            shown = f"{_number(figure.median)} {figure.unit}"
            table.add_row(letter if number == 0 else "", shown, spread, figure.what)
    screen = output.screen()
    if not screen.is_terminal:
        screen.width = FILE_WIDTH
    screen.print(table)
    disk = "" if measured.fsync_ms is None else f", one fsync {measured.fsync_ms:.2f} ms"
    quick = ", --quick: rough" if measured.quick else ""
    print_words(f"{measured.store}, {os.cpu_count()} cores, Python {platform.python_version()}{disk}{quick}")


def _number(value: float) -> str:
    """Write a number with three significant digits, or as a whole number from 100 on."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
