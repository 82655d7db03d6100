"""The command line. This file knows the names of the commands and what each is for. It loads a command only when it is
used.

This package changes nothing by itself: every command goes through `holdfast.client`, as a program would. Each command
is the function of its own name in one of the modules below. Only errors.py turns errors into exit codes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from holdfast.commands.errors import run_command
from holdfast.terminal import streams

SECTIONS = {
    "Run": {
        "run": ("run", "Run a workflow to its end in this process, with live progress."),
        "up": ("up", "Host all roles in one process until it is stopped."),
        "scheduler": ("up", "Host a Scheduler until it is stopped."),
        "agent": ("up", "Host an Agent until it is stopped."),
        "pool": ("pool", "Run as many agents on this host as there is work."),
        "supervisor": ("up", "Host a Supervisor until it is stopped."),
        "server": ("up", "Answer HTTP until it is stopped."),
    },
    "Test": {
        "simulate": ("simulate", "Let a workflow's process die at every boundary, and say what ran twice."),
        "check": ("check", "Replay the code you are about to deploy against every open run."),
    },
    "Look": {
        "graph": ("graph", "Draw a workflow before it runs, from its source."),
        "ps": ("ps", "List runs, newest first."),
        "show": ("show", "Show one run: its steps over time, failed attempts and result."),
        "why": ("ps", "Say in a sentence or two what a run waits for."),
        "logs": ("logs", "Print what a run and its steps have logged, in the order of time."),
        "agents": ("agents", "List the processes that work on the store, and how each is doing."),
        "watch": ("run", "Follow a run until it ends."),
        "alerts": ("alerts", "List alerts, clear them, and test the channels that send them."),
        "doctor": ("doctor", "Check the store's invariants and its health."),
    },
    "Operate": {
        "start": ("operators", "Start a run, and leave it to the processes that are up."),
        "signal": ("operators", "Send a signal to a run."),
        "update": ("operators", "Call an update of a run, and print its answer."),
        "emit": ("events", "Send an event."),
        "events": ("events", "List events, newest first, and what became of them."),
        "cancel": ("operators", "Ask a run, or many, to cancel themselves."),
        "hold": ("hold", "Stop a run, or all of a kind, until it is released."),
        "release": ("hold", "Let a run, or all of a kind, go on after a hold."),
        "holds": ("hold", "List the holds of operators."),
        "breakers": ("hold", "List the breakers of dependencies, and open, close or reset one."),
        "retry": (
            "operators",
            "Try the waiting steps of a run at once, or go on with an ended run under a new id.",
        ),
        "fork": ("operators", "Start a new run from what another one recorded, with edits."),
        "skip": ("operators", "Count an undo that gave up as done by hand."),
        "quarantine": (
            "quarantine",
            "List the steps in quarantine, and release, skip or fail all that are alike.",
        ),
        "acts": ("acts", "List acts on many runs, and carry out, follow or stop one."),
        "asks": ("asks", "List questions to people, show one, or hand it over."),
        "answer": ("asks", "Answer a question to people."),
        "callbacks": ("callbacks", "List the callbacks that wait, the oldest first."),
        "callback": ("callbacks", "End a callback in place of the other system."),
        "limits": (
            "limits",
            "List limits and rates, show who has slots and who waits, or set the number of one.",
        ),
        "fair": ("fair", "List fair keys and their weights, or set a weight."),
        "schedules": ("schedules", "List schedules, and preview, pause, run, create or backfill one."),
        "triggers": (
            "triggers",
            "List composed triggers and the occasions that still wait for something, or start or drop an occasion.",
        ),
        "hooks": ("hooks", "List hooks, where webhooks come in, and make, rotate or remove one."),
        "tokens": ("tokens", "List the tokens of servers, and make, rotate or revoke one."),
        "keys": ("keys", "Make a key, see which keys a store needs, and seal everything with the newest."),
        "prune": ("prune", "Remove runs that ended long ago."),
        "migrate": ("operators", "Bring the store's schema up to date."),
        "bench": ("bench", "Measure how fast Holdfast is on this machine and this store."),
    },
}
"""Section → command → (module, what it is for). So the list of commands is printed without loading any of them."""
SERVICES = frozenset({"up", "scheduler", "agent", "pool", "supervisor", "server"})
"""Commands that go on until they are stopped. They print a log and no result, so it is no error if nobody reads it."""
COMMANDS = {name: place for commands in SECTIONS.values() for name, place in commands.items()}


class Commands(click.Group):
    """The commands, by section. Each is loaded when it is used."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with streams.broken_pipe_as_unread():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with streams.broken_pipe_as_unread():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"holdfast.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, purpose) for name, (_, purpose) in commands.items()], col_max=12)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="holdfast", message="holdfast %(version)s")
@click.pass_context
def holdfast(ctx: click.Context) -> None:
    """Operations of many steps that either finish or undo themselves.

    \b
    holdfast run app.py:order --input '{"card": "tok_1"}' --id order-42
    holdfast show order-42

    --store or HOLDFAST_STORE names the store. Without them it is sqlite:///holdfast.db in the working folder.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `holdfast` command, and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return run_command(
        lambda: holdfast.main(given, prog_name="holdfast", standalone_mode=False),
        as_json="--json" in given,
        has_result=not SERVICES.intersection(given[:1]),
        is_last=arguments is None,
    )
