"""`hold`, `release`, `holds` and `breakers`: show and change what keeps steps from beginning."""

from __future__ import annotations

from functools import wraps
from typing import Any

import click

from holdfast.commands.acts import act_on_many
from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import (
    DRY_RUN_OPTION,
    FILTER_OPTIONS,
    PREFIX_OPTION,
    RUNS_ARGUMENT,
    YES_OPTION,
    Command,
    RunTarget,
    WantedRuns,
    command,
    decorated,
    named_namespace,
    note_option,
    opened,
    target_of,
)
from holdfast.model import ActOptions, Breaker, BreakerState, Hold, HoldScope
from holdfast.namespaces import ALL
from holdfast.supervisor.why import breaker_words
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words

COLOURS = {BreakerState.CLOSED: "green", BreakerState.OPEN: "red", BreakerState.PROBING: "yellow"}
GLYPHS = {BreakerState.CLOSED: "✓", BreakerState.OPEN: "✗", BreakerState.PROBING: "◌"}


def scope_options(fn: Command) -> Command:
    """Add the argument and the options that say what is held: a run, one of these scopes, or many runs by a filter. The
    command gets them as `target` and `scope`. One of the two is None."""

    @wraps(fn)
    def packed(**given: Any) -> Any:
        named = ("workflow", "step", "dependency", "everything")
        scope = {name: given[name] for name in named if given[name]}
        given = {
            name: value for name, value in given.items() if name not in {"step", "dependency", "everything"}
        }
        filters = (given[name] for name in ("states", "tags", "since", "until", "error", "traits", "prefix"))
        if not any(filters) and len(given["run_ids"]) < 2:
            if given["yes"] or given["dry_run"]:
                raise click.UsageError(
                    "--yes and --dry-run are for acts on many runs: say which by --state, --tag, --since, --until, "
                    "--error, --is or --prefix"
                )
            target, given = None, {name: given[name] for name in ("run_ids", "note", "store", "as_json")}
            run_id = next(iter(given.pop("run_ids")), None)
            if not scope and run_id is None and (own := named_namespace()) is not None:
                scope = {"namespace": own}
            if len(scope) + (run_id is not None) != 1:
                raise click.UsageError(
                    "name one thing: a RUN, --workflow, --step, --dependency, --namespace or --all; or say by --state, "
                    "--since and such which runs are meant"
                )
            if run_id is not None:
                nothing = WantedRuns(None, (), None, {}, None, None, None)
                return fn(target=RunTarget(run_id, nothing, False, False), scope=None, **given)
            return fn(target=target, scope=scope, **given)
        if scope.keys() - {"workflow"}:
            raise click.UsageError(
                "--step, --dependency and --all stop steps, and --state, --since and such choose runs: not both"
            )
        return fn(target=target_of(given), scope=None, **given)

    return decorated(
        packed,
        RUNS_ARGUMENT,
        click.option("--workflow", metavar="NAME", help="Choose all runs of this workflow."),
        click.option("--step", metavar="NAME", help="Choose this step, in all runs."),
        click.option("--dependency", metavar="NAME", help="Choose all steps that depend on this."),
        click.option("--all", "everything", is_flag=True, help="Choose everything in the namespace."),
        *FILTER_OPTIONS,
        PREFIX_OPTION,
        YES_OPTION,
        DRY_RUN_OPTION,
    )


@command()
@scope_options
@note_option
def hold(target: RunTarget | None, scope: dict[str, Any] | None, note: str, store: str, as_json: bool) -> int:
    """Stop a run, or all of a kind, until it is released.

    \b
    holdfast hold order-42 --note 'waiting for the bank'
    holdfast hold --workflow order --note 'the warehouse counts its stock'
    holdfast hold --dependency stripe
    holdfast hold --workflow order --state running --since 2h

    Steps that already run may finish, and are recorded. A step that is held does not begin, and spends no attempt. A
    held run does not go on at all. A hold on a workflow, step, dependency, namespace or everything stops only steps.
    Several holds can cover one step; it begins when all of them are released.

    With several RUNs, or --state, --tag, --since, --until, --error, --is or --prefix, runs are held one by one. The command says
    what would happen to them, and asks. The exit code is 1 if some of them were left alone, and 2 if it cannot ask:
    then nothing happens without --yes. See `holdfast acts`.
    """
    if target is not None and target.run_id is None:
        return act_on_many("hold", target, ActOptions(), note, store, as_json)

    async def hold_run(run: str) -> None:
        async with opened(store) as hf:
            state = await hf.run(run).hold(note)
        words = f"{run} is held; `holdfast release {run}` lets it go on"
        _answer(as_json, {"id": run, "state": str(state)}, words, state)

    async def hold_all() -> None:
        async with opened(store) as hf:
            placed = await hf.gates.hold(**(scope or {}), note=note)
        row = placed.hold
        what, option = _words(row)
        words = f"{what} is held; `holdfast release {option}` lets it go on"
        if not placed.new:
            words = f"{what} was held before, by {row.actor}{f' ({row.note})' if row.note else ''}"
        elif not placed.known:
            words += f"\nnothing here is called {row.value} yet: is that the name?"
        _answer(as_json, hold_object(row) | {"new": placed.new, "known": placed.known}, words, "held")

    run_quickly(hold_all() if target is None else hold_run(target.run_id or ""))
    return DONE


@command()
@scope_options
@note_option
def release(
    target: RunTarget | None, scope: dict[str, Any] | None, note: str, store: str, as_json: bool
) -> int:
    """Let a run, or all of a kind, go on after a hold.

    \b
    holdfast release order-42
    holdfast release --workflow order
    holdfast release --workflow order --state held

    What is released begins at once. `holdfast holds` lists holds, and `holdfast ps --state held` lists held runs.

    With several RUNs, or --state, --tag, --since, --until, --error, --is or --prefix, held runs are released one by one. The
    command says what would happen to them, and asks. The exit code is 1 if some of them were left alone, and 2 if it cannot
    ask: then nothing happens without --yes. See `holdfast acts`.
    """
    if target is not None and target.run_id is None:
        return act_on_many("release", target, ActOptions(), note, store, as_json)

    async def release_run(run: str) -> None:
        async with opened(store) as hf:
            state = await hf.run(run).release(note)
        _answer(as_json, {"id": run, "state": str(state)}, f"{run} is released and {state}", state)

    async def release_all() -> None:
        async with opened(store) as hf:
            row = await hf.gates.release(**(scope or {}), note=note)
        _answer(as_json, hold_object(row), f"{_words(row)[0]} is released", None)

    run_quickly(release_all() if target is None else release_run(target.run_id or ""))
    return DONE


@command()
def holds(store: str, as_json: bool) -> None:
    """List the holds of operators.

    \b
    holdfast holds --json

    `holdfast ps --state held` lists runs that are held one by one.
    """

    async def read() -> tuple[list[Hold], float]:
        async with opened(store) as hf:
            return await hf.gates.holds(), await hf.now()

    found, now = run_quickly(read())
    if as_json:
        output.print_json([hold_object(row) for row in found])
        return
    if not found:
        output.say("nothing is held; `holdfast ps --state held` lists held runs")
    for row in found:
        what, option = _words(row)
        output.say(what, "held")
        note = f": {row.note}" if row.note else ""
        by = f"by {row.actor}, {wording.span(now - row.at)} ago{note}"
        print_words(f"  {by}; `holdfast release {option}`", dim=True)


def hold_object(row: Hold) -> output.Object:
    return {
        "scope": str(row.scope),
        "value": row.value,
        "actor": row.actor,
        "note": row.note,
        "at": output.moment(row.at),
    }


def _words(row: Hold) -> tuple[str, str]:
    """Return what is held, and the option that names it."""
    if row.scope is HoldScope.ALL:
        return "everything", f"--all --namespace '{ALL}'"
    return f"{row.scope} {row.value}", f"--{row.scope} {row.value}"


@command()
@click.argument(
    "act",
    type=click.Choice(["list", "open", "close", "reset"]),
    default="list",
    metavar="[list|open|close|reset]",
)
@click.argument("name", required=False, metavar="[NAME]")
@note_option
def breakers(act: str, name: str | None, note: str, store: str, as_json: bool) -> None:
    """List the breakers of dependencies, and open, close or reset one.

    \b
    holdfast breakers
    holdfast breakers open stripe --note 'they announced maintenance'
    holdfast breakers reset stripe

    A breaker opens by itself when half of the attempts fail. Then the steps behind it wait, and spend no attempt. After
    a while it lets one of them begin as a probe, then two, then four …, and closes when they succeed. A breaker that is
    opened or closed by hand stays so until it is reset; then it is tried, and decides by itself again.
    """
    if (act == "list") != (name is None):
        raise click.UsageError("`list` takes no name" if name else f"name the dependency to {act}")
    if act == "list":
        run_quickly(_list(store, as_json))
    else:
        run_quickly(_change(act, name or "", note, store, as_json))


async def _list(store: str, as_json: bool) -> None:
    async with opened(store) as hf:
        found, now = await hf.gates.breakers(), await hf.now()
    if as_json:
        output.print_json([breaker_object(row) for row in found])
        return
    if not found:
        output.say("no dependency has had trouble yet")
    for row in found:
        print_words(f"{GLYPHS[row.state]} {row.name} {row.state}", COLOURS[row.state])
        print_words(f"  {_described(row, now)}", dim=True)


def _described(row: Breaker, now: float) -> str:
    if row.state is not BreakerState.CLOSED:
        return breaker_words(row, now)
    if row.forced:
        note = f" ({row.note})" if row.note else ""
        lasted = wording.span(now - row.window_at)
        reset = f"`holdfast breakers reset {row.name}` lets it decide by itself"
        return f"kept closed by {row.actor} for {lasted}{note}; {reset}"
    return f"its last trouble: {row.error}" if row.error else "nothing is wrong"


async def _change(act: str, name: str, note: str, store: str, as_json: bool) -> None:
    async with opened(store) as hf:
        if act == "open":
            row = await hf.gates.open(name, note)
            words = f"{row.name} is open until `holdfast breakers reset {row.name}`: its steps wait"
        elif act == "close":
            row = await hf.gates.close(name, note)
            reset = f"`holdfast breakers reset {row.name}`"
            words = f"{row.name} is kept closed until {reset}: its steps begin, even if they fail"
        else:
            row = await hf.gates.reset(name, note)
            decides = "decides by itself again"
            words = (
                f"{row.name} is closed and {decides}"
                if row.state is BreakerState.CLOSED
                else f"{row.name} {decides}: it is tried now"
            )
    _answer(as_json, breaker_object(row), words, None)


def breaker_object(row: Breaker) -> output.Object:
    return {
        "name": row.name,
        "state": str(row.state),
        "forced": row.forced,
        "ok": row.ok,
        "failed": row.failed,
        "wave": row.wave,
        "allowance": row.allowance,
        "trips": row.trips,
        "opened_at": output.moment(row.opened_at),
        "open_until": output.moment(row.open_until),
        "actor": row.actor,
        "note": row.note,
        "error": row.error,
    }


def _answer(as_json: bool, document: output.Object, words: str, state: str | None) -> None:
    if as_json:
        output.print_json(document)
    else:
        output.say(words, state)
