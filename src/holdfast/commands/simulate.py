"""`simulate`: tries every boundary of a workflow in virtual time and in memory. It opens no store, and by default
executes no real step."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.options import given_text, json_value
from holdfast.commands.program import find_workflow
from holdfast.environment import Environment
from holdfast.model import UPDATE_PREFIX
from holdfast.terminal import output
from holdfast.terminal.lines import print_words
from holdfast.testing.crashes import INTERPRETERS, Advice, CrashSettings, Explorer, known_part, known_step
from holdfast.testing.report import Report
from holdfast.testing.stand_ins import StandIn, made_up_input
from holdfast.workflow.workflow import Workflow

TIME_LIMIT_S = 60.0
BOUNDARIES_MAX = 1_000_000
"""More than any workflow has: this command has a time limit instead."""
WORDS = Advice(
    lambda option, names: " ".join(f"--{option} {name}" for name in names),
    "`--signal NAME=JSON` sends every run a signal",
    "`--update NAME=JSON` calls every run",
    "`--time-limit S` tries longer",
    "`--interpreters 0` does without",
    "`--stub STEP=JSON` and `--input JSON` give other values",
)


class GivenOption(NamedTuple):
    """The NAME=JSON of a stub, a signal or an update."""

    name: str
    raw: bytes


def _pairs(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> list[GivenOption]:
    found = []
    for item in given:
        name, separator, text = item.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{item!r} is not of the form NAME=JSON", ctx, parameter)
        found.append(GivenOption(name, json_value(text, f"{parameter.opts[0]} {name}")))
    return found


def _named(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(known_step(name).name for name in names)


@click.command()
@click.argument("target", metavar="FILE[:WORKFLOW]")
@click.option(
    "--input",
    "text",
    metavar="JSON",
    help="Pass these arguments, as with `run`. [default: made up from their types]",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Try this many seeds. Each lets parallel steps end in another order.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Begin with this seed.")
@click.option(
    "--boundary",
    type=click.IntRange(min=0),
    metavar="K",
    help="Try only this boundary, and print what happens in order. 0 tries only replays.",
)
@click.option(
    "--stub",
    "stubs",
    multiple=True,
    metavar="STEP=JSON",
    callback=_pairs,
    help="Let this step return this value. May be repeated.",
)
@click.option(
    "--signal",
    "signals",
    multiple=True,
    metavar="NAME=JSON",
    callback=_pairs,
    help="Send this signal to every run. May be repeated.",
)
@click.option(
    "--update",
    "updates",
    multiple=True,
    metavar="NAME=JSON",
    callback=_pairs,
    help="Call this update of every run, after the signals. May be repeated.",
)
@click.option(
    "--real", is_flag=True, help="Execute the steps, except those with --stub. They run many times!"
)
@click.option(
    "--idempotent",
    multiple=True,
    metavar="STEP",
    help="Accept that this step runs twice, because that does no harm. May be repeated.",
)
@click.option(
    "--final",
    multiple=True,
    metavar="STEP",
    help="Accept that nothing undoes this step, because nothing has to. May be repeated.",
)
@click.option(
    "--unreached",
    multiple=True,
    metavar="NAME",
    help="Accept that this step, workflow, signal or update does not come up. May be repeated.",
)
@click.option(
    "--interpreters",
    type=click.IntRange(min=0),
    default=INTERPRETERS,
    show_default=True,
    metavar="N",
    help="Replay the workflow in this many other interpreters, each with another hash seed.",
)
@click.option(
    "--no-failures",
    is_flag=True,
    help="Try only crashes. Do not make steps fail to see whether they are undone.",
)
@click.option("--count-all", is_flag=True, help="Count every execution, also of steps that pass on here.key.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=TIME_LIMIT_S,
    show_default=True,
    metavar="S",
    help="Try no further boundary after this many seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def simulate(**given: Any) -> int:
    """Let a workflow's process die at every boundary, and say what ran twice.

    \b
    holdfast simulate app.py:order --input '{"card": "tok_1"}' --stub charge='{"id": "c1"}'

    There is a boundary before and after every step and every commit. For each of them the workflow runs in memory and
    in virtual time, its process dies there, and another process goes on. Then the same is tried with each step made to
    fail, so that undos run. The command lists what had an effect twice, what was not undone and what ended otherwise,
    each with the command that shows it again. It also replays what was recorded in other interpreters, and says if the
    workflow decides otherwise there.

    Steps are not executed: a value made up from its declared type stands in for each result. --stub gives another
    value, and --real executes the steps. A step that passes on `here.key` counts as one effect, however often it runs.

    The exit code is 0 if everything was tried and nothing was found. It is 1 if something was found, or could not be
    tried.
    """
    as_json = given["as_json"]
    with output.stdout_kept(as_json):
        report = _explored(given)
    if as_json:
        output.print_json(report.as_json())
    else:
        _print(report)
    return DONE if report.ok else ENDED_OTHERWISE


def _explored(given: dict[str, Any]) -> Report:
    workflow = find_workflow(given["target"])
    raw = _input(workflow, given["text"])
    stand_ins: dict[str, StandIn] = {}
    for name, value in given["stubs"]:
        step = known_step(name)
        stand_ins[step.name] = StandIn(step, [step.shape.decode_result(value)])
    environment = Environment()
    end = environment.monotonic() + given["time_limit"]
    replay = _same_command(given)
    report = Report(workflow.name, replay)
    with _progress() as say:
        for seed in range(given["seed"], given["seed"] + given["seeds"]):
            before = len(report.boundaries)
            settings = CrashSettings(
                seed=seed,
                boundary=given["boundary"],
                failures=not given["no_failures"],
                trust_keys=not given["count_all"],
                idempotent=_named(given["idempotent"]),
                final=_named(given["final"]),
                unreached=frozenset(known_part(name) for name in given["unreached"]),
                pretend=not given["real"],
                boundaries_max=BOUNDARIES_MAX,
                interpreters=given["interpreters"],
                stop=lambda: environment.monotonic() > end,
                tried=lambda tried, phase, before=before: say(before + tried, phase),  # type: ignore[misc]
            )
            explorer = Explorer(
                workflow,
                raw,
                settings=settings,
                stand_ins=stand_ins,
                signals=[
                    *given["signals"],
                    *((UPDATE_PREFIX + name, raw) for name, raw in given["updates"]),
                ],
                replay=replay,
                words=WORDS,
            )
            report.add(explorer.explore())
    if given["boundary"] and not report.boundaries:
        raise click.BadParameter(
            f"there is no boundary {given['boundary']}: without this option all are tried, and counted",
            param_hint="--boundary",
        )
    return report


def _input(workflow: Workflow[Any, Any], text: str | None) -> bytes:
    if text is not None:
        return workflow.shape.from_json(given_text(text))
    raw, made_up = made_up_input(workflow)
    if made_up:
        print_words(f"the input is made up: {raw.decode()}; --input gives another", dim=True, err=True)
    return raw


def _same_command(given: dict[str, Any]) -> str:
    """Return this command without the options that choose the boundaries."""
    words = ["holdfast", "simulate", given["target"]]
    if given["text"] is not None:
        words += ["--input", given["text"]]
    for option in ("stubs", "signals", "updates"):
        for name, raw in given[option]:
            words += [f"--{option[:-1]}", f"{name}={raw.decode()}"]
    for option in ("idempotent", "final", "unreached"):
        for name in given[option]:
            words += [f"--{option}", name]
    if given["interpreters"] != INTERPRETERS:
        words += ["--interpreters", str(given["interpreters"])]
    words += [
        f"--{option.replace('_', '-')}" for option in ("real", "no_failures", "count_all") if given[option]
    ]
    return shlex.join(words)


@contextmanager
def _progress() -> Iterator[Callable[[int, str], None]]:
    """At a terminal, show on standard error how many boundaries were tried."""
    screen = output.screen(to_errors=True)
    if not screen.is_terminal:
        yield lambda tried, phase: None
        return
    with screen.status("") as status:
        yield lambda tried, phase: status.update(f"{tried:,} boundaries tried{f'; {phase}' if phase else ''}")


def _print(report: Report) -> None:
    for line in report.trace:
        print_words(line, dim=True)
    if report.trace:
        print_words()
    *findings, last = str(report).splitlines()
    for line in findings:
        print_words(line, None if line.startswith(" ") else "red", bold=not line.startswith(" "))
    print_words("✓ " if report.ok else "✗ ", "green" if report.ok else "red", end=False)
    print_words(last)
