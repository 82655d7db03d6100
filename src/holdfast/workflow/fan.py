"""`map`: many calls, a limited number at a time, of which some may fail.

Up to a page of items, the calls are steps of the run itself. More items than that are divided into pages, and each page
is a child run. So neither the run nor its history grows with the number of items, and an iterator may be longer than
fits into memory. See `pages.py` for what a page is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from holdfast.decider.loop import RunLoop, running
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.workflow.pages import PAGE_BYTES, PAGES_AT_ONCE, PageOutcome, page_bytes, page_code

if TYPE_CHECKING:
    from holdfast.workflow.step import Step
    from holdfast.workflow.workflow import Workflow

    Mapped: TypeAlias = Step[Any, Any] | Workflow[Any, Any]

R = TypeVar("R")

PAGE_ITEMS = 1000
"""How many items a page has, unless the code says otherwise."""


class Tally(NamedTuple):
    """What became of the items of a `map` whose results went into a step."""

    done: int
    failed: int


class _Failures:
    """How many calls may fail, and how many did."""

    def __init__(self, tolerate: float, count: int | None) -> None:
        self._tolerate = tolerate
        self.allowed: int | None = allowance(tolerate, count or 0)
        if count is None and not isinstance(tolerate, int) and tolerate > 0:
            self.allowed = None  # a share of a number that nobody knows before the end
        self.failed = 0
        self.last: Exception | None = None

    def check(self, total: int | None = None) -> None:
        """Raise the last failure if there are too many. `total` is the number of items, once it is known."""
        allowed = self.allowed
        if allowed is None and total is not None:
            allowed = allowance(self._tolerate, total)
        if allowed is not None and self.failed > allowed and self.last is not None:
            raise self.last


async def fan(
    mapped: Mapped,
    items: Iterable[Any] | AsyncIterable[Any],
    *,
    limit: int,
    tolerate: float,
    into: Any = None,
    page: int = PAGE_ITEMS,
) -> Any:
    """Call `mapped` once for each item. Return the results in the order of the items, or a tally if they go `into` a
    step."""
    allowance(tolerate, 0)
    _demand_whole(limit, "limit")
    _demand_whole(page, "page")
    if into is not None and not hasattr(into, "undone_by"):
        raise DefinitionError(f"map(into={into!r}): give it a step, so that it is durable: put @step on it")
    source = _calls(mapped, items)
    first = await _take(source, page + 1)
    loop = running()
    if loop is None:
        async for call in source:
            first.append(call)
    if loop is None or len(first) <= page:
        results = await flat(mapped, first, limit=limit, tolerate=tolerate)
        return results if into is None else await _poured(mapped, results, into)
    count = len(items) if isinstance(items, Sized) else None
    failures = _Failures(tolerate, count)
    pages = _Pages(loop, mapped, first, source, into=into, limit=limit, page=page, failures=failures)
    return await pages.play(count)


class _Pages:
    """The pages of one `map`. At most a few of them are under way, and no other is in memory."""

    def __init__(
        self,
        loop: RunLoop,
        mapped: Mapped,
        first: list[tuple[Any, ...]],
        source: AsyncIterator[tuple[Any, ...]],
        *,
        into: Step[Any, Any] | None,
        limit: int,
        page: int,
        failures: _Failures,
    ) -> None:
        self._loop, self._mapped, self._ahead, self._source = loop, mapped, first, source
        self._into, self._size, self._failures = into, page, failures
        self._at_once = min(PAGES_AT_ONCE, limit)
        self._limit = limit // self._at_once
        self._code = page_code(loop.host.workflow, mapped)
        self._items = 0

    async def play(self, count: int | None) -> Any:
        under_way: dict[asyncio.Task[PageOutcome], int] = {}
        results: list[list[Any]] = []
        done, failures, exhausted = 0, self._failures, False
        try:
            while True:
                while not exhausted and len(under_way) < self._at_once:
                    raw = await self._next_page()
                    if raw is None:
                        exhausted = True
                        break
                    under_way[self._loop.create_task(self._code(raw))] = len(results)
                    results.append([])
                if not under_way:
                    break
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in under_way if task.done()]:
                    place, counted = under_way.pop(task), task.result()
                    done += counted.done
                    failures.failed += counted.failed
                    failures.last = counted.last_failure() or failures.last
                    if self._into is None:
                        results[place] = counted.values(self._mapped)
                failures.check()
                self._show(done, failures.failed, count)
            failures.check(self._items)
        except GeneratorExit:
            raise  # the run leaves memory, and nothing has ended
        except BaseException:
            await _give_up([task for task in under_way if not task.done()])
            raise
        if self._into is not None:
            return Tally(done, failures.failed)
        return [value for part in results for value in part]

    async def _next_page(self) -> bytes | None:
        """Return the input of the next page: as many items as it has, or fewer if they are large. None at the end."""
        shape, limit = self._mapped.shape, self._loop.host.payload_max
        found: list[bytes] = []
        size = 0
        while len(found) < self._size and size < PAGE_BYTES:
            if not self._ahead:
                self._ahead = await _take(self._source, min(self._size - len(found), 100))
                if not self._ahead:
                    break
            try:
                raw, _ = shape.checked(self._ahead[0], {}, limit)
            except InvalidInput as wrong:
                raise InvalidInput(f"map(): item {self._items + len(found)}: {wrong}") from None
            del self._ahead[0]
            found.append(raw)
            size += len(raw)
        self._items += len(found)
        if not found:
            return None
        return page_bytes(
            self._mapped, found, limit=self._limit, allowed=self._failures.allowed, into=self._into
        )

    def _show(self, done: int, failed: int, count: int | None) -> None:
        of = f" of {count:,}" if count is not None else ""
        bad = f", {failed:,} failed" if failed else ""
        fraction = (done + failed) / count if count else None
        self._loop.host.set_progress(fraction, f"{done:,}{of} done{bad}")


async def _calls(mapped: Mapped, items: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[tuple[Any, ...]]:
    """Yield the arguments of each call. A tuple is spread over several parameters."""
    spread = mapped.shape.spreads
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item if spread and isinstance(item, tuple) else (item,)
        return
    if not isinstance(items, Iterable):
        raise DefinitionError(
            f"map({items!r:.60}): expected something to iterate over: a list, an iterator or an async iterator"
        )
    for item in items:
        yield item if spread and isinstance(item, tuple) else (item,)


async def _take(source: AsyncIterator[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    while len(found) < count:
        try:
            found.append(await anext(source))
        except StopAsyncIteration:
            break
    return found


async def _poured(mapped: Mapped, results: list[Any], into: Step[Any, Any]) -> Tally:
    """Give the results to the step `into`, a bounded batch at a time."""
    good = [one for one in results if not isinstance(one, Exception)]
    batch: list[Any] = []
    size = 0
    for value in good:
        raw = len(mapped.shape.encode_result(value))
        if batch and (size + raw > PAGE_BYTES or len(batch) >= PAGE_ITEMS):
            await into(batch)
            batch, size = [], 0
        batch.append(value)
        size += raw
    if batch:
        await into(batch)
    return Tally(len(good), len(results) - len(good))


async def page(
    mapped: Mapped, calls: Sequence[Any], *, limit: int, allowed: int | None, into: Any
) -> PageOutcome:
    """Make the calls of one page. This is the code of a page's run."""
    shape = mapped.shape

    def call(bound: Any) -> Coroutine[Any, Any, Any]:
        made: Coroutine[Any, Any, Any] = shape.call(mapped, bound)
        return made

    tolerate = len(calls) if allowed is None else allowed
    results = await _fan(call, [(bound,) for bound in calls], limit=limit, allowed=tolerate)
    if into is not None:
        tally = await _poured(mapped, results, into)
        last = next((one for one in reversed(results) if isinstance(one, Exception)), None)
        return PageOutcome.of_tally(tally.done, tally.failed, last)
    return PageOutcome.of_results(shape, results)


async def flat(mapped: Any, calls: Sequence[tuple[Any, ...]], *, limit: int, tolerate: float) -> list[Any]:
    """Make all calls as steps of this run. Return the results in their order."""
    return await _fan(mapped, calls, limit=limit, allowed=allowance(tolerate, len(calls)))


async def _fan(
    call: Callable[..., Coroutine[Any, Any, R]],
    calls: Sequence[tuple[Any, ...]],
    *,
    limit: int,
    allowed: int,
) -> list[R | Exception]:
    """Return the results in the order of the calls. Tasks are made in that order, too: the k-th call has the k-th
    key."""
    slots = asyncio.Semaphore(limit)
    tasks: list[asyncio.Task[R]] = []
    failures: list[BaseException] = []
    left = len(calls)
    over = asyncio.Event()

    def end(task: asyncio.Task[R]) -> None:
        nonlocal left
        left -= 1
        slots.release()
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            failures.append(error)
        if left == 0 or len(failures) > allowed:
            over.set()

    try:
        for arguments in calls:
            await slots.acquire()
            if over.is_set():
                break
            task = asyncio.get_running_loop().create_task(call(*arguments))
            task.add_done_callback(end)
            tasks.append(task)
        if calls:
            await over.wait()
    finally:
        unfinished = [task for task in tasks if not task.done()]
        for task in unfinished:
            task.cancel()
    if len(failures) > allowed:
        if unfinished:
            await asyncio.wait(unfinished)
        raise failures[allowed]
    return [_result(task) for task in tasks]


async def _give_up(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _result(task: asyncio.Task[R]) -> R | Exception:
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, Exception):
        raise error
    return error


def _demand_whole(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DefinitionError(f"map({name}={value!r}): expected a whole number")
    if value < 1:
        raise DefinitionError(f"map({name}={value}): the {name} must be at least 1")


def allowance(tolerate: float, count: int) -> int:
    """Return how many of `count` calls may fail. `tolerate` is a share below 1, or a number."""
    if isinstance(tolerate, bool) or not tolerate >= 0:
        raise DefinitionError(
            f"map(tolerate={tolerate!r}): expected a share like 0.1, or a number of failures"
        )
    if isinstance(tolerate, int):
        return tolerate
    if tolerate >= 1:
        raise DefinitionError(
            f"map(tolerate={tolerate!r}): a share is below 1; for a number of failures write an int"
        )
    return int(tolerate * count)
