"""What authors write for composed triggers: several events and times start a workflow together.

when(all_of(every("0 8 * * 1-5", tz="Europe/Oslo"), "rates.published"), within=timedelta(hours=2))(report)

A line declares a trigger. The node that loads it publishes all lines of its code together, like schedules.
"""

from __future__ import annotations

import inspect
import sys
from datetime import UTC, datetime
from hashlib import blake2b
from types import CodeType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from holdfast.codec.schema import ANYTHING, Schema, resolved, schema_of
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.event_names import event_path, event_type, event_value
from holdfast.model import DEFAULT_NAMESPACE, ComposedRow
from holdfast.namespaces import stored
from holdfast.occasions import DAY, TIME, Composition, Group, Otherwise, Part, certain, parts_of
from holdfast.times.plan import Plan
from holdfast.workflow import options, registry
from holdfast.workflow.every import Every, line_module, line_place, schedule_name
from holdfast.workflow.options import Seconds
from holdfast.workflow.workflow import Workflow

PARTS_MAX = 50
"""How many parts one trigger may have."""
COUNT_MAX = 1000
"""How many events one part may take."""
WITHIN_MAX_S = 366 * 86_400.0


class Several(NamedTuple):
    """Several events of a type: how many are needed. See `several`."""

    type: str
    many: int


class Needed(NamedTuple):
    """Parts of which all are needed, or any one. See `all_of` and `any_of`."""

    need: Literal["all", "any"]
    parts: tuple[tuple[str | None, Any], ...]


Given: TypeAlias = str | Every | Several | Needed
"""What a part may be: the type of an event, `several(…)` of them, a time, or parts of its own."""


def several(type: str, count: int) -> Several:
    """This many events of a type, with different ids: `several("positions.published", 3)`. The argument has a list of
    their data."""
    place = line_place(sys._getframe(1))
    what = f"{place}: several({type!r}, …)"
    if not 1 <= options.whole_number(count, what) <= COUNT_MAX:
        raise DefinitionError(f"{what}: expected a whole number from 1 to {COUNT_MAX:,}, not {count!r}")
    return Several(event_type(type, what), count)


def all_of(*parts: Given, **named: Given) -> Needed:
    """All of these parts: types of events, `several(…)` of them, times by `every(…)`, or `any_of(…)`. A keyword gives a part
    the name that the workflow's argument has it by: `all_of(eight=every("0 8 * * *"), rates="rates.published")`."""
    return _needed("all", parts, named, line_place(sys._getframe(1)))


def any_of(*parts: Given, **named: Given) -> Needed:
    """Any one of these parts. It is written like `all_of`."""
    return _needed("any", parts, named, line_place(sys._getframe(1)))


def _needed(need: Literal["all", "any"], parts: tuple[Any, ...], named: dict[str, Any], place: str) -> Needed:
    found: list[tuple[str | None, Any]] = [(None, one) for one in parts]
    found += list(named.items())
    what = f"{place}: {need}_of(…)"
    if not found:
        raise DefinitionError(
            f'{what}: it needs at least one part, such as the type of an event: {need}_of("rates.published")'
        )
    for name, one in found:
        if isinstance(one, str):
            event_type(one, what)
        elif not isinstance(one, Every | Several | Needed):
            raise DefinitionError(
                f"{what}: a part is the type of an event, several(…), every(…), all_of(…) or any_of(…), not {one!r}"
            )
        if name is not None and isinstance(one, Needed):
            raise DefinitionError(f"{what}: {name}=: only a part has a name: name those inside")
    return Needed(need, tuple(found))


class ComposedLine(NamedTuple):
    """One composed trigger that code declares."""

    name: str
    composition: Composition
    workflow: Workflow[Any, Any]
    module: str
    """The module in which the line stands."""
    place: str
    unit: CodeType

    def new(self, namespace: str, origin: str) -> ComposedRow:
        """Return the trigger as the store has it. Raise if the workflow's argument does not fit."""
        schemas = _schemas(self.workflow, self.composition, self.place)
        body = msgspec.json.encode(msgspec.structs.replace(self.composition, schemas=schemas)).decode()
        name, workflow = stored(namespace, self.name), stored(namespace, self.workflow.name)
        version = self.workflow.version
        digest = blake2b(f"{workflow}\0{version}\0{body}".encode(), digest_size=8).hexdigest()
        return ComposedRow(name, namespace, workflow, version, body, digest, origin)


class When:
    """What a composed trigger waits for, without its workflow. See `when`."""

    def __init__(self, composition: Composition, name: str | None) -> None:
        self.composition, self.name = composition, name

    def __call__(self, workflow: Workflow[Any, Any], /) -> None:
        """Declare a trigger that starts the workflow. Its name is that of the workflow, unless `when(name=…)` gives another
        one."""
        frame = sys._getframe(1)
        place = line_place(frame)
        if not isinstance(workflow, Workflow):
            raise DefinitionError(f"{place}: when(…) takes a workflow, not {workflow!r}")
        _demand_plain(workflow, place)
        composition = msgspec.structs.replace(
            self.composition,
            parameter=_parameter(workflow, place),
            priority=workflow.priority,
            timeout_s=workflow.timeout_s,
            tags=workflow.tags,
        )
        name = schedule_name(self.name or workflow.label, f"{place}: name", "trigger")
        line = ComposedLine(name, composition, workflow, line_module(frame), place, frame.f_code)
        if _knows_types(workflow):
            line.new(DEFAULT_NAMESPACE, "")  # what does not fit is refused here
        registry.register_composed(line)


def when(
    needs: Given,
    *,
    within: Seconds,
    by: str = "subject",
    otherwise: Otherwise = "alert",
    time_as: str | None = None,
    name: str | None = None,
) -> When:
    """Say which events and times start a workflow together: `when(all_of("rates.published", "file.arrived"), within=3600)(report)`.

    `by` says which of them belong together: an attribute of the events, or a path in their data, such as `data.day`. Each value
    is an occasion of its own, and starts one run, with what arrived as its argument: an object with the data of each part.

    A time belongs to the occasion of its local date, such as `2026-11-16`; `time_as="%Y-%m"` makes it the month. With another `by`
    than `subject`, `time_as` must be given.

    `within` is how long an occasion waits for the rest after the first part came. `otherwise` says what happens if something is
    still missing then: `alert` people, `skip` it, or `run` with what arrived.
    """
    place = line_place(sys._getframe(1))
    try:
        return When(_composition(needs, within, by, otherwise, time_as), _named(name))
    except DefinitionError as wrong:
        raise DefinitionError(f"{place}: when(…): {wrong}") from None


def _named(name: str | None) -> str | None:
    return None if name is None else schedule_name(name, "name", "trigger")


def _composition(
    needs: Given, within: Seconds, by: str, otherwise: Otherwise, time_as: str | None
) -> Composition:
    if isinstance(needs, str | Every | Several):
        needs = Needed("all", ((None, needs),))
    if not isinstance(needs, Needed):
        raise DefinitionError(f"expected all_of(…) or any_of(…), not {needs!r}")
    group = _group(needs)
    parts = list(parts_of(group))
    _check_parts(parts)
    event_path(by, "by")
    within_s = options.seconds(within, "within")
    if within_s is None or within_s > WITHIN_MAX_S:
        raise DefinitionError(f"within: expected a time of at most a year, not {within!r}")
    if otherwise not in get_args(Otherwise):
        raise DefinitionError(
            f"otherwise: expected one of {', '.join(get_args(Otherwise))}, not {otherwise!r}"
        )
    has_time = any(part.times is not None for part in parts)
    if time_as is not None and not has_time:
        raise DefinitionError(
            "time_as: it says which occasion a time belongs to, and there is no every(…) among the parts"
        )
    if has_time and time_as is None and by != "subject":
        raise DefinitionError(
            f"a time has no {by}: say which occasion it belongs to, by time_as, such as time_as={DAY!r} for its local date"
        )
    return Composition(group, by, within_s, otherwise, "", _time_as(time_as or DAY))


def _time_as(given: object) -> str:
    example = datetime(2026, 11, 16, 8, tzinfo=UTC)
    try:
        if not isinstance(given, str) or "%" not in given:
            raise InvalidInput("")
        event_value(example.strftime(given), "time_as")
    except (InvalidInput, ValueError):
        raise DefinitionError(
            f"time_as: expected a format of strftime, such as {DAY!r} or '%Y-%m', not {given!r}"
        ) from None
    return given


def _group(needed: Needed) -> Group:
    return Group(needed.need, tuple(_part(name, one) for name, one in needed.parts))


def _part(name: str | None, given: Given) -> Part | Group:
    if isinstance(given, Needed):
        return _group(given)
    if isinstance(given, Every):
        return Part(name or TIME, times=_plan(given))
    if isinstance(given, Several):
        return Part(name or given.type, given.type, given.many)
    return Part(name or given, given)


def _plan(given: Every) -> Plan:
    """Check that a time says nothing about runs: those are the trigger's."""
    plan, plain = given.plan, Plan("1s")
    for field, word in (
        ("overlap", "overlap"),
        ("missed", "missed"),
        ("count", "count"),
        ("pause_after", "pause_after"),
        ("jitter_s", "jitter"),
    ):
        if getattr(plan, field) != getattr(plain, field):
            raise DefinitionError(f"every(…, {word}=…): it is about runs of a schedule, so leave it out here")
    if given.name is not None:
        raise DefinitionError(
            f"every(name={given.name!r}): name the part by a keyword: all_of({TIME}=every(…))"
        )
    return plan


def _check_parts(parts: list[Part]) -> None:
    if len(parts) > PARTS_MAX:
        raise DefinitionError(f"at most {PARTS_MAX} parts, not {len(parts)}")
    for which in ("key", "name"):
        found: list[str] = [getattr(part, which) for part in parts]
        for one in found:
            if found.count(one) > 1:
                shown = TIME if one.startswith("$") else one
                raise DefinitionError(
                    f"the part {shown!r} is there twice: give one of them another name by a keyword, or use several(…)"
                )
    if not any(part.type for part in parts):
        raise DefinitionError(
            "there is no event among the parts: every(…)(workflow) alone starts a workflow by time"
        )


def _demand_plain(workflow: Workflow[Any, Any], place: str) -> None:
    """Raise if the workflow has settings that a trigger cannot keep."""
    if workflow.gather is not None:
        raise DefinitionError(
            f"{place}: debounce= and batch= do not gather what a trigger starts: let {workflow.label} start its runs from a "
            "workflow without them"
        )
    if workflow.namespace not in {None, DEFAULT_NAMESPACE}:
        raise DefinitionError(f"{place}: a trigger in code starts runs in the namespace of its node")
    if workflow.id is not None:
        raise DefinitionError(f"{place}: the id of a run is that of its occasion, so leave out id")
    if workflow.fair is not None:
        raise DefinitionError(f"{place}: a trigger starts runs without a fair key, so leave out fair")
    workflow.demand_at_once("a trigger says when its runs begin")


def _parameter(workflow: Workflow[Any, Any], place: str) -> str:
    named = list(inspect.signature(workflow.fn).parameters.values())
    is_one = bool(named) and named[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    if not is_one or any(one.default is one.empty for one in named[1:]):
        raise DefinitionError(
            f"{place}: a trigger has one thing to give, what arrived: let {workflow.__name__}() take one argument, and give all "
            "others a default"
        )
    return named[0].name


# --- what the argument takes ------------------------------------------------------------------------------------------


def _knows_types(workflow: Workflow[Any, Any]) -> bool:
    """False if a type that the workflow names does not exist yet. Then the node checks it."""
    try:
        return workflow.shape is not None
    except DefinitionError:
        return False


def _schemas(workflow: Workflow[Any, Any], composition: Composition, place: str) -> dict[str, Schema]:
    """Return what the data of each part must be, by the type of the workflow's argument. Raise if the argument cannot take
    the parts."""
    whole = schema_of(workflow.shape.struct)
    defs = whole.get("$defs", {})
    argument = resolved(
        resolved(whole, defs).get("properties", {}).get(composition.parameter, ANYTHING), defs
    )
    what = f"{place}: {workflow.__name__}({composition.parameter})"
    parts = composition.parts
    kind = argument.get("type")
    if isinstance(kind, str) and kind != "object":
        raise DefinitionError(
            f"{what}: a trigger gives it what arrived, by part: let it take a dict, a TypedDict or a class with the fields "
            f"{', '.join(part.name for part in parts)}"
        )
    fields = argument.get("properties")
    others = argument.get("additionalProperties", ANYTHING)
    if fields is None:
        fields = {}
    else:
        _check_fields(fields, argument.get("required", []), composition, what)
    found = {}
    for part in parts:
        schema = resolved(fields.get(part.name, others if isinstance(others, dict) else ANYTHING), defs)
        if part.count is not None:
            schema = resolved(schema.get("items", ANYTHING), defs)
        if part.type and schema:
            found[part.name] = {**schema, **({"$defs": defs} if defs else {})}
    return found


def _check_fields(fields: dict[str, Any], required: list[str], composition: Composition, what: str) -> None:
    for part in composition.parts:
        if part.name not in fields:
            raise DefinitionError(
                f"{what}: it has no field {part.name!r}: give the part the name of a field by a keyword, such as "
                f"all_of({next(iter(fields), 'rates')}=…)"
            )
    sure = frozenset() if composition.otherwise == "run" else certain(composition.needs)
    if unsure := [name for name in required if name not in sure]:
        why = 'with otherwise="run" something may be missing' if not sure else "not every occasion has it"
        raise DefinitionError(f"{what}: its field {unsure[0]!r} needs a default: {why}")
