"""The one writer of a node: group commit.

What is submitted while a commit is in flight becomes the next one. A batch is optimistic: if any precondition fails,
nothing of it is written and its operations are asked again one at a time, so that each gets its own answer. When more is
queued, it goes to the store before the answers to the last batch are told: so the store works on the one while this
process goes on with the other.

While the store is away the writer keeps its batch and tries again; whether the lost commit happened shows when the
batch is repeated, because every operation names a fence that its first success raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import LeaseLost, StoreError, StoreFull, StoreUnreachable
from holdfast.store.operations import Op, Start
from holdfast.store.protocol import Writes
from holdfast.store.verdicts import unrecorded

log = logging.getLogger("holdfast.writer")

Then = Callable[[Any], None]
"""Called with the operation's answer, or with the exception that ended it."""


class Writer:
    def __init__(self, store: Writes, node: str, environment: Environment, config: Config) -> None:
        self._store, self._node = store, node
        self._environment, self._config = environment, config
        self._queue: list[tuple[Op, Then]] = []
        self._bell = asyncio.Event()
        self._batch: list[tuple[Op, Then]] = []
        self._untold: list[tuple[Then, Any]] = []
        """Who waits for answers that are here already."""
        self._closing = False
        self._successor: Writer | None = None
        self.commits = 0
        self.operations = 0
        self._in_doubt = False
        """The store may say that this node holds more than it knows."""
        self.trouble: StoreError | None = None
        """Why the store does not answer at the moment."""
        self.after_trouble: Callable[[], Awaitable[None]] | None = None
        """Called when the store is back, before the lost batch is repeated."""
        self.holds: Callable[[], bool] = lambda: True
        """Whether the node has its lease. Asked before every commit: a process that was paused writes nothing."""

    def doubt(self) -> None:
        """Somebody else's write to the store was not answered: look what it left, before the next commit."""
        self._in_doubt = True
        self._bell.set()

    def submit(self, op: Op, then: Then) -> None:
        """Write `op` with the next commit; `then` is called after it, never before."""
        if self._successor is not None:
            self._pass_on(op, then)
            return
        self._queue.append((op, then))
        if not self._bell.is_set():
            self._bell.set()

    def write(self, op: Op) -> asyncio.Future[Any]:
        """Write `op` and wait for its answer."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def then(answer: Any) -> None:
            if not answered.done():
                if isinstance(answer, BaseException):
                    answered.set_exception(answer)
                else:
                    answered.set_result(answer)

        self.submit(op, then)
        return answered

    async def run(self) -> None:
        """Commit until closed; what is queued at closing is still committed."""
        while not (self._closing and not self._queue):
            if not self._queue:
                if self._in_doubt:
                    await self._commit([])
                else:
                    self._bell.clear()
                    await self._bell.wait()
                continue
            size = self._config.batch_max
            self._batch, self._queue = self._queue[:size], self._queue[size:]
            await self._commit(self._batch)
            self._batch = []

    def unanswered(self) -> list[Op]:
        """What was submitted and may not be written yet."""
        return [op for op, _ in (*self._batch, *self._queue)]

    def close(self) -> None:
        self._closing = True
        self._bell.set()

    def abandon(self) -> None:
        """The node lost its lease: nothing queued may be written any more, but for starts, which need none."""
        queue, self._queue = self._queue, []
        self._refuse(queue)

    def hand_over(self, successor: Writer) -> None:
        """Another writer answers from now on whoever started a run: nobody else would."""
        self._successor = successor
        queue, self._queue = self._queue, []
        for op, then in queue:
            self._pass_on(op, then)

    def leave(self) -> None:
        """The node is gone. Whoever started a run and has no answer yet must not wait for ever."""
        left, self._batch, self._queue = [*self._batch, *self._queue], [], []
        for op, then in left:
            if type(op) is Start:
                self._pass_on(op, then)

    def _pass_on(self, op: Op, then: Then) -> None:
        if type(op) is not Start:
            then(LeaseLost("this node lost its lease"))
        elif self._successor is not None:
            self._successor.submit(op, then)
        else:
            then(
                StoreUnreachable(
                    "the node stopped before the database answered: start the run again, with its id"
                )
            )

    def _refuse(self, batch: list[tuple[Op, Then]]) -> None:
        for op, then in batch:
            if type(op) is Start:
                self.submit(op, then)
            else:
                then(LeaseLost("this node lost its lease"))

    async def _commit(self, batch: list[tuple[Op, Then]]) -> None:
        try:
            answers = await self._patiently([op for op, _ in batch])
        except LeaseLost:
            self._refuse(batch)
            return
        except Exception as error:  # noqa: BLE001  whatever it is, the writer goes on: its node holds what nobody else can write
            if len(batch) == 1:
                batch[0][1](await self._instead(batch[0][0], _as_store_error(error)))
                return
            for op, then in batch:  # each gets its own answer, so that one bad row does not fail the others
                then(await self._alone(op))
            return
        self._untold += zip([then for _, then in batch], answers, strict=True)
        if self._queue:
            asyncio.get_running_loop().call_soon(self._tell)  # after the next batch went to the store
        else:
            self._tell()

    async def _alone(self, op: Op) -> Any:
        try:
            return (await self._patiently([op]))[0]
        except Exception as error:  # noqa: BLE001  as above
            return await self._instead(op, _as_store_error(error))

    async def _instead(self, op: Op, error: StoreError) -> Any:
        """The database refuses this by itself: an outcome is recorded as a failure that says so, or its step would be held by
        this node for ever; of anything else, the refusal is the answer."""
        failure = None if isinstance(error, LeaseLost) else unrecorded(op, error, self._environment.now())
        if failure is None:
            return error
        log.warning("the outcome of step %s of run %s is refused: %s", failure.n, failure.run_id, error)
        try:
            return (await self._patiently([failure]))[0]
        except Exception as again:  # noqa: BLE001  as above
            return _as_store_error(again)

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for then, answer in untold:
            then(answer)

    async def _patiently(self, ops: list[Op]) -> list[Any]:
        """Commit, waiting out a store that is away."""
        delay_s = 0.05
        while True:
            try:
                if self._in_doubt:
                    self._in_doubt = False  # before it looks: what is doubted meanwhile is looked at again
                    self._tell()  # or what the last commit gave this node would seem unknown to it
                    await self._look_around()
                if not self.holds() and any(type(op) is not Start for op in ops):
                    raise LeaseLost("this node lost its lease")
                answers = await self._store.commit(self._node, ops) if ops else []
            except StoreUnreachable as error:
                self.trouble, self._in_doubt = error, True
                await self._environment.sleep(delay_s * (0.5 + self._environment.random.random()))
                delay_s = min(delay_s * 2, 1.0)
            else:
                self.trouble = None
                self.commits += 1
                self.operations += len(ops)
                return answers

    async def _look_around(self) -> None:
        try:
            if self.after_trouble is not None:
                await self.after_trouble()
        except StoreFull as error:
            raise StoreUnreachable(str(error)) from error  # it is waited for, as every commit does


def _as_store_error(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    log.error("a commit failed in an unknown way", exc_info=error)
    return StoreError(f"the write failed: {error}")
