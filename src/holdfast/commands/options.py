"""What commands share: their options, reading JSON from the command line, and opening the store."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import wraps
from typing import Any, Literal, NamedTuple

import click
from click.core import ParameterSource

from holdfast.actor import Via
from holdfast.addresses import is_remote, shown_address
from holdfast.client import DEFAULT_STORE, Holdfast
from holdfast.codec import read_json
from holdfast.commands.program import find_workflow
from holdfast.desk.filters import age, run_filter
from holdfast.errors import HoldfastError, InvalidInput, InvalidSettings, StoreUnreachable
from holdfast.model import DEFAULT_NAMESPACE, RunState, Trait
from holdfast.namespaces import ALL, DEFAULT_ONLY, Namespaces, given_namespaces
from holdfast.store import dialect_of
from holdfast.store.reads import RunFilter
from holdfast.workflow.workflow import Workflow

Command = Callable[..., Any]


NAMESPACE, SAID_BY = "holdfast.namespace", "holdfast.namespace.said_by"
"""Under these, the context of a command has what --namespace says, and who says it."""


def _keep_namespace(ctx: click.Context, parameter: click.Parameter, given: Any) -> None:
    names = given if isinstance(given, tuple) else (given,)
    ctx.meta[NAMESPACE] = given_namespaces(names or (DEFAULT_NAMESPACE,), "--namespace")
    ctx.meta[SAID_BY] = ctx.get_parameter_source(parameter.name or "")


def chosen_namespaces() -> Namespaces:
    """Return the namespaces that the options of the running command say."""
    ctx = click.get_current_context(silent=True)
    found = None if ctx is None else ctx.meta.get(NAMESPACE)
    return found if isinstance(found, Namespaces) else DEFAULT_ONLY


def named_namespace() -> str | None:
    """Return the namespace that the command line itself names, and not only the environment."""
    ctx = click.get_current_context(silent=True)
    said = ctx is not None and ctx.meta.get(SAID_BY) is ParameterSource.COMMANDLINE
    return chosen_namespaces().only if said else None


def asked_namespaces(url: str) -> Namespaces | None:
    """Return the namespaces to open this address with. A server knows the namespace of a token, so that it need not be
    said."""
    ctx = click.get_current_context(silent=True)
    said_by = None if ctx is None else ctx.meta.get(SAID_BY)
    is_said = said_by in {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}
    return chosen_namespaces() if is_said or not is_remote(url) else None


def namespace_option(*, many: bool) -> Callable[[Command], Command]:
    """Declare the option --namespace. A command need not take it: whatever opens the store looks it up."""
    if many:
        purpose = f"Work for this namespace; '{ALL}' is all. May be repeated."
    else:
        purpose = f"See and change only what is in this namespace; '{ALL}' is the whole store."
    return click.option(
        "--namespace",
        "namespace_",
        metavar="NAME",
        envvar="HOLDFAST_NAMESPACE",
        show_envvar=True,
        multiple=many,
        default=None if many else DEFAULT_NAMESPACE,
        expose_value=False,
        callback=_keep_namespace,
        help=f"{purpose} [default: {DEFAULT_NAMESPACE}]",
    )


DATABASES = "sqlite:///file.db, postgresql://user@host/database"


def command(
    *,
    namespace: Literal["one", "many", "none"] = "one",
    needs_database: bool = False,
    **settings: Any,
) -> Callable[[Command], click.Command]:
    """Declare a command that has the options --store, --namespace and --json. One that needs the database itself refuses
    the address of a server."""

    def declare(fn: Command) -> click.Command:
        if needs_database:
            fn = _on_database(fn)
        if namespace != "none":
            fn = namespace_option(many=namespace == "many")(fn)
        store = click.option(
            "--store",
            envvar="HOLDFAST_STORE",
            default=DEFAULT_STORE,
            show_default=True,
            show_envvar=True,
            metavar="URL",
            help=f"Use this store: {DATABASES}{'' if needs_database else ', or a server: https://host'}.",
        )
        as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
        declared: click.Command = click.command(**settings)(store(as_json(fn)))
        return declared

    return declare


def _on_database(fn: Command) -> Command:
    @wraps(fn)
    def checked(**given: Any) -> Any:
        demand_database(given["store"], fn.__name__.rstrip("_"))
        return fn(**given)

    return checked


def _tags(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for item in given:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{item!r} is not of the form name=value", ctx, parameter)
        tags[key] = value
    return tags


def tag_option(purpose: str) -> Callable[[Command], Command]:
    """Declare the option --tag. `purpose` is its help."""
    return click.option(
        "--tag",
        "tags",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_tags,
        help=f"{purpose} May be repeated.",
    )


label_option = click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="LABEL",
    help="Give the agent this label, for steps that need it, such as gpu. May be repeated.",
)
alerts_option = click.option(
    "--alerts",
    envvar="HOLDFAST_ALERTS",
    show_envvar=True,
    metavar="FILE",
    help="Send alerts through the channels in this TOML or JSON file.",
)
app_option = click.option(
    "--app",
    envvar="HOLDFAST_APP",
    show_envvar=True,
    metavar="NAME",
    help="Name the application this code belongs to. [default: its distribution, project or file]",
)
note_option = click.option("--note", default="", metavar="TEXT", help="Say why, for the journal.")
run_argument = click.argument("run_id", metavar="RUN")


def _span(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read how much later something is to happen."""
    found = None if text is None else age(text)
    if text is not None and not found:
        raise click.BadParameter(
            f"{text!r} is no span: write 90s, 30min, 12h, 2d or 1w", ctx=context, param=option
        )
    return found


def _time(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """Read a time. Without an offset it is local time."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
        return found if found.utcoffset() is not None else found.astimezone()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is no time: write 2026-11-17, 2026-11-17T14:30 or 2026-11-17T14:30Z",
            ctx=context,
            param=option,
        ) from None


def _due(context: click.Context, option: click.Parameter, text: str | None) -> float | datetime | None:
    """Read by when a run is due: a span or a time."""
    if text is None or age(text) is None:
        return _time(context, option, text)
    return _span(context, option, text)


class RunRequest(NamedTuple):
    """What the command line says about the run to start."""

    target: str
    text: str | None
    run_id: str | None
    priority: int | None
    tags: dict[str, str]
    timeout: float | None
    begin_in: float | None
    begin_at: datetime | None
    by: str | None
    fair: str | None
    due: float | datetime | None
    app: str | None

    def workflow(self) -> Workflow[Any, Any]:
        """Return the workflow with the id, the tags and the other settings of this request."""
        settings: dict[str, Any] = {
            "id": self.run_id,
            "priority": self.priority,
            "timeout": self.timeout,
            "begin_in": self.begin_in,
            "begin_at": self.begin_at,
            "by": self.by,
            "fair": self.fair,
            "due_at" if isinstance(self.due, datetime) else "due": self.due,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        return find_workflow(self.target).using(tags=self.tags, **given)

    def input(self, workflow: Workflow[Any, Any]) -> bytes | None:
        """Return the input as it is recorded, or None if none was given."""
        return None if self.text is None else workflow.shape.from_json(given_text(self.text))


def no_input(workflow: Workflow[Any, Any]) -> bytes:
    """Return the input of a run that gets none, as it is recorded. Raise InvalidInput if the workflow needs one."""
    try:
        return workflow.shape.from_json("{}")
    except InvalidInput as wrong:
        raise InvalidInput(f"{wrong}: give the arguments with --input") from None


def start_options(fn: Command) -> Command:
    """Add the options that describe a run. The command gets them as one `request`."""

    @wraps(fn)
    def packed(**given: Any) -> Any:
        request = RunRequest(**{name: given.pop(name) for name in RunRequest._fields})
        return fn(request=request, **given)

    options = (
        click.argument("target", metavar="FILE[:WORKFLOW]"),
        click.option(
            "--input",
            "text",
            metavar="JSON",
            help="Pass these arguments: an object by name, or an array. `-` reads standard input.",
        ),
        click.option(
            "--id", "run_id", metavar="ID", help="Give the run this id. The same id is the same run."
        ),
        click.option(
            "--priority",
            type=click.IntRange(0, 9),
            metavar="N",
            help="Give the run this priority, from 0 to 9. Higher goes first. [default: the workflow's own]",
        ),
        tag_option("Give the run this tag."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="S",
            help="Fail the run if it has not ended after this many seconds.",
        ),
        click.option(
            "--in",
            "begin_in",
            callback=_span,
            metavar="SPAN",
            help="Let the run begin this much later: 90s, 30min, 12h, 2d.",
        ),
        click.option(
            "--at",
            "begin_at",
            callback=_time,
            metavar="TIME",
            help="Let the run begin at this time, such as 2026-11-17T14:30.",
        ),
        click.option(
            "--by",
            metavar="PERSON",
            help="Say who starts the run: person:anna. Some asks must not be answered by that person.",
        ),
        click.option(
            "--fair",
            metavar="KEY",
            help="Say whom the run is for, such as a customer. The backlog of one key does not delay another.",
        ),
        click.option(
            "--due",
            callback=_due,
            metavar="SPAN|TIME",
            help="Promise that the run ends within 2h, or by 2026-11-17T06:00. People are notified before it is late.",
        ),
        app_option,
    )
    decorated: Command = packed
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


class WantedRuns(NamedTuple):
    """Which runs the command line means."""

    prefix: str | None
    states: tuple[str, ...]
    workflow: str | None
    tags: dict[str, str]
    since: str | None
    until: str | None
    error: str | None
    traits: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    """The runs that were named, if they are several. Without them, the rest is a filter."""

    def filter(self, now: float) -> RunFilter:
        """Return the filter. `now` is the store's time, from which ages are counted."""
        return run_filter(now=now, what="--{}", **self._asdict())


RUNS_ARGUMENT = click.argument("run_ids", metavar="[RUN]...", nargs=-1)
RUN_ARGUMENT = click.argument(
    "run_ids",
    metavar="[RUN]",
    required=False,
    callback=lambda _, __, value: () if value is None else (value,),
)
PREFIX_ARGUMENT = click.argument("prefix", metavar="[PREFIX]", required=False)
PREFIX_OPTION = click.option("--prefix", metavar="TEXT", help="Only runs whose id begins with this.")
WORKFLOW_OPTION = click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
FILTER_OPTIONS = (
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([str(state) for state in RunState]),
        metavar="STATE",
        help="Only runs in this state. May be repeated.",
    ),
    tag_option("Only runs with this tag."),
    click.option(
        "--since",
        metavar="TIME",
        help="Only runs started since then: 2h, 3d (so long ago), or a time such as 2026-11-17T14:30.",
    ),
    click.option("--until", metavar="TIME", help="Only runs started before then, as with --since."),
    click.option(
        "--error", metavar="CLASS", help="Only runs that failed or are stuck with an error of this class."
    ),
    click.option(
        "--is",
        "traits",
        multiple=True,
        type=click.Choice([str(trait) for trait in Trait]),
        metavar="WHAT",
        help="Only open runs that are retrying or late, or waiting-for-agent, -breaker, -signal, -ask, -callback, -child or "
        "-timer. May be repeated.",
    ),
)


def filter_options(fn: Command) -> Command:
    """Add the argument and the options that say which runs are meant. The command gets them as one `wanted`."""

    @wraps(fn)
    def packed(**given: Any) -> Any:
        return fn(wanted=_wanted(given), **given)

    state, *rest = FILTER_OPTIONS
    return decorated(packed, PREFIX_ARGUMENT, state, WORKFLOW_OPTION, *rest)


def decorated(fn: Command, *options: Callable[[Command], Command]) -> Command:
    """Add these options to a command, in this order."""
    for option in reversed(options):
        fn = option(fn)
    return fn


class RunTarget(NamedTuple):
    """What a command acts on: one run, or many."""

    run_id: str | None
    wanted: WantedRuns
    yes: bool
    dry_run: bool

    @property
    def is_many(self) -> bool:
        return self.run_id is None


YES_OPTION = click.option("--yes", "-y", is_flag=True, help="Act on many runs without asking first.")
DRY_RUN_OPTION = click.option(
    "--dry-run", is_flag=True, help="Only say what would happen to many runs, and keep the plan."
)


def target_options(fn: Command, runs: Callable[[Command], Command] = RUNS_ARGUMENT) -> Command:
    """Add the argument and the options that say on what a command acts: RUN, several of them, or many runs by a filter. The
    command gets them as one `target`."""

    @wraps(fn)
    def packed(**given: Any) -> Any:
        return fn(target=target_of(given), **given)

    state, *rest = FILTER_OPTIONS
    return decorated(packed, runs, state, WORKFLOW_OPTION, *rest, PREFIX_OPTION, YES_OPTION, DRY_RUN_OPTION)


def _wanted(given: dict[str, Any]) -> WantedRuns:
    """Take the filter out of the options."""
    return WantedRuns(**{name: given.pop(name) for name in WantedRuns._fields if name != "ids"})


def target_of(given: dict[str, Any]) -> RunTarget:
    """Take what says on what a command acts out of its options."""
    named, wanted = tuple(dict.fromkeys(given.pop("run_ids"))), _wanted(given)
    if not named and not any(wanted):
        raise click.UsageError(
            "name a RUN, or say which runs are meant: --state, --workflow, --since, --error, --is, --tag, --prefix"
        )
    if named and any(wanted):
        raise click.UsageError("name a RUN, or say by options which runs are meant: not both")
    is_one = len(named) == 1
    if not is_one:
        wanted = wanted._replace(ids=named)
    target = RunTarget(named[0] if is_one else None, wanted, given.pop("yes"), given.pop("dry_run"))
    if is_one and (target.yes or target.dry_run):
        raise click.UsageError("--yes and --dry-run are for acts on many runs")
    return target


def given_text(text: str) -> str:
    """Return the value of an option that takes JSON. `-` stands for standard input."""
    if text != "-":
        return text
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is not UTF-8 text: {error}") from error


def json_value(text: str, what: str) -> bytes:
    """Read any JSON value, and return it as the bytes in which the store keeps a payload."""
    value = read_json(given_text(text), what)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class CommandStore(Holdfast):
    """A store, as a command opens it for the person who gave the command."""

    _via = Via.CLI


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Holdfast]:
    """Open the store to look at it or to operate on it. This hosts no role, and makes no file where there is no
    store."""
    if not is_remote(url):
        demand_file(url)
    async with CommandStore(url, roles=(), namespace=asked_namespaces(url)) as hf:
        try:
            yield hf
        except HoldfastError as error:
            error.args = tuple(hf.shown_text(one) if isinstance(one, str) else one for one in error.args)
            raise


def demand_database(url: str, command: str) -> None:
    """Raise if this is the address of a server, because the command needs the database itself."""
    if is_remote(url):
        raise InvalidSettings(
            f"`holdfast {command}` needs the database itself, and {shown_address(url)} is a server: name the store, "
            "--store sqlite:///file.db or --store postgresql://user@host/database"
        )


def demand_file(url: str) -> None:
    if (path := dialect_of(url).missing(url)) is not None:
        raise StoreUnreachable(
            f"there is no store at {path}: `holdfast run` and `holdfast start` make one, --store names another"
        )
