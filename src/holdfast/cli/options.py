"""What commands share: their options, reading JSON from the command line, and opening the store."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from holdfast.client import DEFAULT_STORE, Holdfast
from holdfast.errors import InvalidInput, StoreUnreachable

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
        return click.command(**settings)(store(as_json(fn)))

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
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=_tags, help="A tag of the run; may be repeated."
)
label_option = click.option(
    "--label", "labels", multiple=True, metavar="LABEL", help="What this agent has, for steps that need it: gpu."
)
note_option = click.option("--note", default="", metavar="TEXT", help="Why, for the journal.")
run_argument = click.argument("run_id", metavar="RUN")


def start_options(fn: Command) -> Command:
    """How a run is asked for."""
    for option in (
        click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S",
                     help="The run fails when it has not ended after so many seconds."),
        tag_option,
        click.option("--priority", type=int, metavar="N", help="Higher goes first; 0 unless the workflow says more."),
        click.option("--id", "run_id", metavar="ID", help="The run's id. The same id is the same run."),
        click.option("--input", "text", metavar="JSON",
                     help="The arguments: an object by name, or an array. `-` reads standard input."),
        click.argument("target", metavar="FILE[:WORKFLOW]"),
    ):
        fn = option(fn)
    return fn


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

    def refuse(name: str) -> NoReturn:
        raise InvalidInput(f"{what}: {name} is not JSON")

    try:
        value = json.loads(given_text(text), parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise InvalidInput(f"{what}: nested too deeply") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Holdfast]:
    """The store, for looking and operating: no role is hosted, and no new file is made by a look."""
    demand_file(url)
    async with Holdfast(url, roles=()) as hf:
        yield hf


def demand_file(url: str) -> None:
    if url.startswith("sqlite:"):
        from holdfast.store.sqlite.database import path_of  # noqa: PLC0415  only when SQLite is meant

        path = path_of(url)
        if path != ":memory:" and not Path(path).exists():
            raise StoreUnreachable(
                f"there is no store at {path}: `holdfast run` and `holdfast start` make one, --store names another"
            )
