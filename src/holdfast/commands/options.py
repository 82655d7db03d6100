"""What commands share: their options, reading JSON from the command line, and opening the store."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, NamedTuple

import click

from holdfast.client import DEFAULT_STORE, Holdfast
from holdfast.codec import read_json
from holdfast.commands.program import find_workflow
from holdfast.errors import InvalidInput, StoreUnreachable
from holdfast.store import dialect_of
from holdfast.workflow.workflow import Workflow

Command = Callable[..., Any]


def command(**settings: Any) -> Callable[[Command], click.Command]:
    """A command with the two options that all have."""

    def made(fn: Command) -> click.Command:
        store = click.option(
            "--store",
            envvar="HOLDFAST_STORE",
            default=DEFAULT_STORE,
            show_default=True,
            show_envvar=True,
            metavar="URL",
            help="sqlite:///file.db or postgresql://user@host/database.",
        )
        as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
        found: click.Command = click.command(**settings)(store(as_json(fn)))
        return found

    return made


def _tags(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for item in given:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{item!r} is not of the form name=value", ctx, parameter)
        tags[key] = value
    return tags


tag_option = click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_tags,
    help="A tag of the run; may be repeated.",
)
label_option = click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="LABEL",
    help="What this agent has, for steps that need it: gpu.",
)
alerts_option = click.option(
    "--alerts",
    envvar="HOLDFAST_ALERTS",
    show_envvar=True,
    metavar="FILE",
    help="The channels that alerts are told through: TOML or JSON.",
)
app_option = click.option(
    "--app",
    envvar="HOLDFAST_APP",
    show_envvar=True,
    metavar="NAME",
    help="The application this code belongs to. [default: its distribution, project or file]",
)
note_option = click.option("--note", default="", metavar="TEXT", help="Why, for the journal.")
run_argument = click.argument("run_id", metavar="RUN")


class RunWanted(NamedTuple):
    """A run as the command line asks for it."""

    target: str
    text: str | None
    run_id: str | None
    priority: int | None
    tags: dict[str, str]
    timeout: float | None
    namespace: str | None
    app: str | None

    def workflow(self) -> Workflow[Any, Any]:
        """The workflow, with what was asked for."""
        settings: dict[str, Any] = {
            "id": self.run_id,
            "priority": self.priority,
            "timeout": self.timeout,
            "namespace": self.namespace,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        return find_workflow(self.target).using(tags=self.tags, **given)

    def input(self, workflow: Workflow[Any, Any]) -> bytes | None:
        """The input as it is recorded; None when none was given."""
        return None if self.text is None else workflow.shape.from_json(given_text(self.text))


def start_options(fn: Command) -> Command:
    """The options by which a run is asked for, handed on as one value."""

    @wraps(fn)
    def packed(**given: Any) -> Any:
        asked = RunWanted(**{name: given.pop(name) for name in RunWanted._fields})
        return fn(asked=asked, **given)

    options = (
        click.argument("target", metavar="FILE[:WORKFLOW]"),
        click.option(
            "--input",
            "text",
            metavar="JSON",
            help="The arguments: an object by name, or an array. `-` reads standard input.",
        ),
        click.option("--id", "run_id", metavar="ID", help="The run's id. The same id is the same run."),
        click.option(
            "--priority", type=int, metavar="N", help="Higher goes first. [default: the workflow's own]"
        ),
        tag_option,
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="S",
            help="The run fails when it has not ended after so many seconds.",
        ),
        click.option("--namespace", metavar="NAME", help="For whom it runs, so that it can be held apart."),
        app_option,
    )
    found: Command = packed
    for option in reversed(options):
        found = option(found)
    return found


def given_text(text: str) -> str:
    """The value of an option that takes JSON: `-` is what stands on standard input."""
    if text != "-":
        return text
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is not UTF-8 text: {error}") from error


def json_value(text: str, what: str) -> bytes:
    """Any JSON value, as the bytes a payload is kept in."""
    value = read_json(given_text(text), what)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Holdfast]:
    """The store, for looking and operating: no role is hosted, and no new file is made by a look."""
    demand_file(url)
    async with Holdfast(url, roles=()) as hf:
        yield hf


def demand_file(url: str) -> None:
    if (path := dialect_of(url).missing(url)) is not None:
        raise StoreUnreachable(
            f"there is no store at {path}: `holdfast run` and `holdfast start` make one, --store names another"
        )
