"""A page: a child run that makes some of the calls of a `map`.

A page is a run of the workflow whose code called `map`, so that only those who have this code claim it. Its input shows
that it is a page: the one member `$page`, which no parameter can be called, says what to call and with what. Its parent
records no more of this input than a digest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast import codec
from holdfast.codec import Payload, Shape
from holdfast.errors import InvalidInput
from holdfast.policy import Retry
from holdfast.workflow import registry

if TYPE_CHECKING:
    from holdfast.workflow.step import Step
    from holdfast.workflow.workflow import Workflow

    Mapped: TypeAlias = Step[Any, Any] | Workflow[Any, Any]

PAGE_BYTES = 256 * 1024
"""A page has fewer items than it may have if they are larger than this together. So has a batch of results."""
PAGES_AT_ONCE = 4
"""How many pages of one `map` are under way. With fewer, the last slow calls of a page would keep the others waiting."""
PREFIX = b'{"$page":'


class PageInput(msgspec.Struct, omit_defaults=True):
    """What a page is to do."""

    of: str
    """The name of the step or workflow that is called."""
    items: list[msgspec.Raw]
    """The arguments of each call."""
    limit: int
    version: str | None = None
    """The version of the workflow. None for a step."""
    allowed: int | None = None
    into: str | None = None
    timeout_s: float | None = None
    retry: str | None = None
    priority: int | None = None
    needs: list[str] | None = None
    tags: dict[str, str] = {}
    due_s: float | None = None
    due_at: float | None = None


class PageOutcome(msgspec.Struct, omit_defaults=True):
    """What became of a page: the results, or only how many there were."""

    done: int
    failed: int
    results: list[msgspec.Raw] | None = None
    errors: dict[int, str] = {}
    """The errors, by their place among the results."""
    last: str | None = None
    """The last error, if the results went into a step."""

    @classmethod
    def of_results(cls, shape: Shape, results: Sequence[Any]) -> PageOutcome:
        made = cls(0, 0, [])
        assert made.results is not None
        for place, one in enumerate(results):
            if isinstance(one, Exception):
                made.errors[place] = codec.encode_error(one)
                made.results.append(msgspec.Raw(b"null"))
            else:
                made.results.append(msgspec.Raw(shape.encode_result(one)))
        made.failed = len(made.errors)
        made.done = len(results) - made.failed
        return made

    @classmethod
    def of_tally(cls, done: int, failed: int, last: Exception | None) -> PageOutcome:
        return cls(done, failed, last=None if last is None else codec.encode_error(last))

    def last_failure(self) -> Exception | None:
        error = self.errors[max(self.errors)] if self.errors else self.last
        return None if error is None else codec.decode_error(error)

    def values(self, mapped: Mapped) -> list[Any]:
        """Return the results as the code gets them, with exceptions in the places of those that failed."""
        result = mapped.shape.result
        return [
            codec.decode_error(self.errors[place])
            if place in self.errors
            else result.decode_whole(bytes(raw))
            for place, raw in enumerate(self.results or ())
        ]


class _CountedPayload(Payload):
    """How the outcome of a page is written and read."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Any, "the outcome of a page")

    def encode(self, value: Any, limit: int = 0) -> bytes:
        """Write it, however large: each result in it was checked when its step returned it."""
        return msgspec.json.encode(value)

    def decode(self, raw: bytes) -> Any:
        return _counted.decode(raw)

    def decode_whole(self, raw: bytes, *, typed: bool = False) -> Any:
        return _counted.decode(raw)


_counted = msgspec.json.Decoder(PageOutcome)
_inputs = msgspec.json.Decoder(PageInput)


class PageShape(Shape):
    """How the input of a page is written and read."""

    def __init__(self) -> None:
        super().__init__(_signature, {})
        self.result = _CountedPayload()
        self.encode_result = self.result.encode
        self.decode_result = self.result.decode

    def checked(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = 0) -> tuple[bytes, Any]:
        return args[0], None

    def decode(self, raw: bytes) -> Any:
        """Return what the page is to do, with the code that it names. Raise InvalidInput if this code is not loaded."""
        page = _inputs.decode(raw[len(PREFIX) : -1])
        mapped = _found(page)
        calls = [mapped.shape.decode_whole(bytes(item)) for item in page.items]
        into = None if page.into is None else registry.steps.get(page.into)
        if page.into is not None and into is None:
            raise InvalidInput(f"step {page.into}, which gets the results of map(), is not loaded here")
        return mapped, calls, page.limit, page.allowed, into

    def decode_whole(self, raw: bytes) -> Any:
        return self.decode(raw)

    def call(self, fn: Any, bound: Any) -> Any:
        mapped, calls, limit, allowed, into = bound
        return fn(mapped, calls, limit=limit, allowed=allowed, into=into)


def _signature() -> None:
    """A page has no parameters that an author could name."""


def _found(page: PageInput) -> Mapped:
    """Return the step or workflow that a page calls, with the settings for its calls."""
    if page.version is not None:
        workflow = registry.workflows.get((page.of, page.version))
        if workflow is None:
            raise InvalidInput(f"{page.of} version {page.version}, which map() calls, is not loaded here")
        found = workflow.using(due=None).using(
            priority=page.priority or 0, tags=page.tags, timeout=page.timeout_s
        )
        found.due_s, found.due_at = page.due_s, page.due_at
        return found
    step = registry.steps.get(page.of)
    if step is None:
        raise InvalidInput(f"step {page.of}, which map() calls, is not loaded here")
    step = step.using(
        timeout=page.timeout_s, priority=page.priority or 0, needs=page.needs or (), due=page.due_s
    )
    return step if page.retry is None else step.using(retry=Retry.decode(page.retry))


def page_bytes(
    mapped: Mapped, items: Sequence[bytes], *, limit: int, allowed: int | None, into: Step[Any, Any] | None
) -> bytes:
    """Return the input of a page."""
    page = PageInput(
        mapped.name,
        [msgspec.Raw(item) for item in items],
        limit,
        getattr(mapped, "version", None),
        allowed,
        None if into is None else into.name,
        mapped.timeout_s,
        _retry_of(mapped),
        mapped.priority,
        list(getattr(mapped, "needs", ())),
        getattr(mapped, "tags", {}),
        getattr(mapped, "due_s", None),
        getattr(mapped, "due_at", None),
    )
    return PREFIX + msgspec.json.encode(page) + b"}"


def _retry_of(mapped: Mapped) -> str | None:
    """Return the policy that the code chose for these calls. None if it is the declared one."""
    origin = getattr(mapped, "origin", None)
    if origin is None or mapped is origin:
        return None
    chosen: str | None = mapped.retry_override if mapped.retry is not origin.retry else None  # type: ignore[union-attr]
    return chosen


def is_page(input: bytes) -> bool:
    """True if a run with this input is a page."""
    return input.startswith(PREFIX)


def shown_as(input: bytes) -> str | None:
    """Return the name of what a page calls. None if the run is no page."""
    if not is_page(input):
        return None
    return str(json.loads(input)["$page"]["of"])


def page_code(workflow: Workflow[Any, Any], mapped: Mapped | None = None) -> Workflow[Any, Any]:
    """Return the code of the pages of a workflow's runs: for those who call it, with the key that a page of `mapped`
    has."""
    from holdfast.workflow.fan import page  # noqa: PLC0415  a page makes its calls as any map does

    code = workflow.using(priority=0, tags={}, timeout=None)
    code.fn, code.shape, code.is_page, code.id, code.joins = page, PageShape(), True, None, False
    code.label = workflow.label if mapped is None else f"{mapped.label}.page"
    return code


def code_of(workflow: Workflow[Any, Any] | None, input: bytes) -> Workflow[Any, Any] | None:
    """Return the code of a run of this workflow with this input."""
    return page_code(workflow) if workflow is not None and is_page(input) else workflow
