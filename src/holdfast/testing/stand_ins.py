"""Stand-ins for steps: values, exceptions and functions that a test gives, or a value made up from the declared
type."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import PurePath
from types import CodeType, FunctionType
from typing import Any

import msgspec
from msgspec import inspect as described

from holdfast.codec.forms import TAG, Variant, is_pydantic
from holdfast.errors import HoldfastError
from holdfast.testing.parts import FOLLOWED_MAX
from holdfast.workflow.here import Here
from holdfast.workflow.reach import codes, enclosed
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow

DEPTH_MAX = 6
"""How many levels deep a value is made up, for types that contain themselves."""


class StandIn:
    """What a step does instead of executing: one outcome for each execution, and the last one for all further ones."""

    def __init__(self, step: Step[Any, Any], outcomes: Sequence[Any]) -> None:
        self.step = step
        self.outcomes = list(outcomes) if outcomes else [made_up(step)]
        self.calls = [_is_call(outcome) for outcome in self.outcomes]
        """For each outcome, whether it is a function."""
        for outcome, is_call in zip(self.outcomes, self.calls, strict=True):
            if not is_call and not _is_error(outcome):
                # Raises at once, in the test, if the value is not of the step's result type.
                step.shape.encode_result(outcome)

    def play(self, taken: int = 0) -> Play:
        """Begin a use of this stand-in, after `taken` of its outcomes."""
        return Play(self, taken)


class Play:
    """One use of a stand-in."""

    def __init__(self, stand_in: StandIn, taken: int) -> None:
        self._stand_in = stand_in
        self.taken = taken

    @property
    def runs_code(self) -> bool:
        """True if the next outcome is a function, which may read `here`."""
        return self._stand_in.calls[self._at]

    @property
    def _at(self) -> int:
        return min(self.taken, len(self._stand_in.outcomes) - 1)

    async def perform(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        at = self._at
        outcome = self._stand_in.outcomes[at]
        self.taken += 1
        if self._stand_in.calls[at]:
            return await execute(outcome, args, kwargs)
        if _is_error(outcome):
            raise outcome
        return outcome


async def execute(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function, which may be a `def` or an `async def`, and return its result."""
    value = fn(*args, **kwargs)
    if inspect.isawaitable(value):
        return await value
    return value


def _is_error(outcome: Any) -> bool:
    return isinstance(outcome, BaseException) or (
        isinstance(outcome, type) and issubclass(outcome, BaseException)
    )


def _is_call(outcome: Any) -> bool:
    return inspect.isroutine(outcome) or isinstance(outcome, Step)


# --- values from types ------------------------------------------------------------------------------------------------


def made_up(step: Step[Any, Any]) -> Any:
    """Return a value of the type that the step declares as its result."""
    result = step.shape.result
    try:
        plain = _plain(described.type_info(result.form.type), step.name.rsplit(".", 1)[-1], 0)
        return result.decode(msgspec.json.encode(plain))
    except (HoldfastError, LookupError) as error:
        raise HoldfastError(
            f"no value can be made up for the result of {step.name}, because {error}: give one"
        ) from None


def made_up_input(workflow: Workflow[Any, Any]) -> tuple[bytes, bool]:
    """Return arguments for a run, and whether any had to be made up. Those with a default are left to it."""
    shape = workflow.shape
    plain = {
        field.encode_name: _plain(described.type_info(field.type), field.name, 0)
        for field in msgspec.structs.fields(shape.struct)
        if field.required
    }
    return shape.encode(shape.decode(msgspec.json.encode(plain))), bool(plain)


def _plain(kind: described.Type, name: str, depth: int) -> Any:  # noqa: PLR0911, PLR0912  one line for each kind
    deep = depth >= DEPTH_MAX
    match kind:
        case described.NoneType() | described.AnyType():
            return None
        case described.BoolType():
            return True
        case described.IntType() | described.FloatType():
            return _number(kind)
        case described.StrType():
            return name.ljust(kind.min_length or 0, "-")[: kind.max_length]
        case described.BytesType() | described.ByteArrayType() | described.MemoryViewType():
            return ""
        case described.DateTimeType():
            return "2027-01-15T08:00:00Z"
        case described.DateType():
            return "2027-01-15"
        case described.TimeType():
            return "08:00:00"
        case described.TimeDeltaType():
            return "PT1S"
        case described.UUIDType():
            return "00000000-0000-4000-8000-000000000000"
        case described.DecimalType():
            return "1"
        case described.EnumType():
            return next(iter(kind.cls)).value
        case described.LiteralType():
            return kind.values[0]
        case described.UnionType():
            return _first(kind.types, name, depth)
        case described.TupleType():
            return [_plain(item, name, depth + 1) for item in kind.item_types]
        case described.DictType():
            return {} if deep else _entry(kind, name, depth)
        case described.CollectionType():
            return [] if deep else [_plain(kind.item_type, name, depth + 1)] * max(1, kind.min_length or 0)
        case described.NamedTupleType():
            return [_plain(field.type, field.name, depth + 1) for field in kind.fields]
        case described.StructType() | described.DataclassType() | described.TypedDictType():
            fields = {
                field.encode_name: _plain(field.type, field.name, depth + 1)
                for field in kind.fields
                if field.required
            }
            tag = getattr(kind, "tag_field", None)
            return {tag: kind.tag, **fields} if tag and isinstance(kind, described.StructType) else fields
        case described.CustomType():
            return _custom(kind.cls, name, depth)
        case described.Metadata():
            return _plain(kind.type, name, depth)
    raise LookupError(f"{kind!r} is not known")


def _entry(kind: described.DictType, name: str, depth: int) -> dict[Any, Any]:
    """Return a dict with one entry, so that a loop over it runs once."""
    key = _plain(kind.key_type, name, depth + 1)
    return {name if key is None else str(key): _plain(kind.value_type, name, depth + 1)}


def _first(kinds: Sequence[described.Type], name: str, depth: int) -> Any:
    """Return a value of the union's first type that is not None; None if it may be None and nests too deep."""
    some = [kind for kind in kinds if not isinstance(kind, described.NoneType)]
    if depth >= DEPTH_MAX and len(some) < len(kinds):
        return None
    return _plain(some[0], name, depth) if some else None


def _number(kind: described.IntType | described.FloatType) -> float:
    least = max(
        1, *(bound for bound in (kind.ge, None if kind.gt is None else kind.gt + 1) if bound is not None), 1
    )
    most = min(
        (bound for bound in (kind.le, None if kind.lt is None else kind.lt - 1) if bound is not None),
        default=least,
    )
    number = min(least, most)
    if kind.multiple_of:
        number = kind.multiple_of * max(1, -(-number // kind.multiple_of))
    return int(number) if isinstance(kind, described.IntType) else float(number)


def _custom(kind: type, name: str, depth: int) -> Any:
    if issubclass(kind, Variant):
        tag, member = next(iter(kind.members.items()))
        return {TAG: tag, **_plain(described.type_info(member), name, depth + 1)}
    if issubclass(kind, PurePath):
        return name
    if is_pydantic(kind):
        fields: dict[str, Any] = kind.model_fields  # type: ignore[attr-defined]  # a pydantic model, which is not imported here
        return {
            field.alias or own: _plain(described.type_info(field.annotation), own, depth + 1)
            for own, field in fields.items()
            if field.is_required()
        }
    raise LookupError(f"{kind.__name__} is not known")


# --- does a step pass on its key? -------------------------------------------------------------------------------------


@cache
def mentions_key(fn: Callable[..., Any]) -> bool:
    """True if the function's code, or that of the functions it names, reads `here.key` or `here.undoes`."""
    return _mentions_key(fn, 0, set())


def _mentions_key(fn: Callable[..., Any], followed: int, seen: set[CodeType]) -> bool:
    if not isinstance(fn, FunctionType):
        return False
    names = {**fn.__globals__, **enclosed(fn)}
    for code in codes(fn.__code__):
        if code in seen:
            continue
        seen.add(code)
        if _reads_key(code, names):
            return True
        if followed < FOLLOWED_MAX:
            for name in code.co_names:
                other = names.get(name)
                if isinstance(other, FunctionType) and _mentions_key(other, followed + 1, seen):
                    return True
    return False


def _reads_key(code: CodeType, names: dict[str, Any]) -> bool:
    before = ""
    for instruction in dis.get_instructions(code):
        if not instruction.opname.startswith("LOAD_"):
            continue
        name = instruction.argval if isinstance(instruction.argval, str) else ""
        reads = name in {"key", "undoes"} and instruction.opname.startswith("LOAD_ATTR")
        if reads and (before == "here" or isinstance(names.get(before), Here)):
            return True
        before = name
    return False
