"""The writer of a node: it puts many operations into one commit.

What is submitted while a commit is under way goes into the next commit. A batch is optimistic. If any precondition
fails, nothing of it is written, and the writer writes its operations one at a time, so that each gets its own answer.
If more is queued, the writer sends the next batch to the store before it passes on the answers to the last one. So the
store works on one batch while this process goes on with the results of the other.

While the store is away or cannot write, the writer keeps its batch and tries again. An answer that got lost does no
harm: every operation names a fence that its first success raised, so the second try shows whether the first one was
written. So every operation that is submitted gets an answer. If a batch fails with an unexpected error, the writer
tries it again a few times, and then in halves, until it has found the operation that cannot be written. Only that
operation fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import LeaseLost, StoreError, StoreFull, StoreGone, StoreUnreachable
from holdfast.store.answers import PreconditionFailed
from holdfast.store.operations import Hop, Op, Start

log = logging.getLogger("holdfast.writer")

TRIES_MAX = 4
"""How often the writer tries a commit that fails with an unexpected error. That takes about half a second. A short
disturbance, such as a driver that is just losing its connection, is over by then."""
PART_TRIES_MAX = 2
"""How often the writer tries a part of such a batch. The whole batch has been tried often enough."""
AGAIN_MIN_S, AGAIN_MAX_S = 0.05, 1.0
"""How long the writer waits between two tries of a commit. The time doubles with each try."""

Then = Callable[[Any], None]
"""Called with the answer to the operation, or with an exception if it failed."""


class WriterHost(Protocol):
    """What a writer needs from the node that it writes for."""

    def has_lease(self) -> bool:
        """True while the node has its lease. The writer asks before every commit, because the process may have been
        paused."""

    async def reconcile(self) -> None:
        """Give up what this node has according to the store and does not know of. Called before the next commit after
        an answer got lost."""

    def lose_store(self, gone: StoreGone) -> None:
        """Stop the node, because its store no longer exists."""


class Commits(Protocol):
    """What a writer needs from the store: `Batches`."""

    async def commit(self, node: str, ops: Sequence[Op]) -> list[Any]: ...


class Writer:
    def __init__(
        self, store: Commits, node: str, environment: Environment, config: Config, host: WriterHost
    ) -> None:
        self._store, self._node, self._host = store, node, host
        self._environment, self._config = environment, config
        self._queue: list[tuple[Op, Then]] = []
        self._bell = asyncio.Event()
        self._batch: list[tuple[Op, Then]] = []
        self._answers: list[tuple[Then, Any]] = []
        """Answers that have come and are still to be passed on."""
        self._closing = False
        self._successor: Writer | None = None
        self.commits = 0
        self.operations = 0
        self._in_doubt = False
        """An answer got lost, so this node may have runs and steps that it does not know of."""
        self._trying: list[tuple[Op, Then]] = []
        self._tried_since: float | None = None
        """Since when the writer has been trying the current batch."""
        self._is_sent = False
        """The current batch may be written, because a try of it got no answer."""
        self._resting = False
        """The writer waits between two tries."""
        self.trouble: StoreError | None = None
        """Why the store cannot be written at the moment."""

    def doubt(self) -> None:
        """Reconcile before the next commit, because another write of this node got no answer."""
        self._in_doubt = True
        self._bell.set()

    def submit(self, op: Op, then: Then) -> None:
        """Write `op` with the next commit. `then` is called after that commit."""
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
        """Commit until the writer is closed. What is queued then is still committed."""
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
        """Return the operations that were submitted and have no answer yet."""
        return [op for op, _ in (*self._batch, *self._queue)]

    def close(self) -> None:
        self._closing = True
        self._bell.set()

    def abandon(self) -> None:
        """Refuse what is queued, because the node lost its lease. Starts stay queued: they need no lease."""
        queue, self._queue = self._queue, []
        self._refuse(queue)

    def hand_over(self, successor: Writer) -> None:
        """Pass all starts to another writer, now and from now on. Everything else that is queued is refused."""
        self._successor = successor
        queue, self._queue = self._queue, []
        for op, then in queue:
            self._pass_on(op, then)

    def leave(self) -> None:
        """Pass on or refuse the starts that have no answer yet, because the node stops. Their callers must not wait for
        ever."""
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
                    "the node stopped before the database answered: start the run again with the same id"
                )
            )

    def _refuse(self, batch: list[tuple[Op, Then]]) -> None:
        for op, then in batch:
            if type(op) is Start:
                self.submit(op, then)
            else:
                then(LeaseLost("this node lost its lease"))

    async def _commit(self, batch: list[tuple[Op, Then]], tries_max: int = TRIES_MAX) -> None:
        """Write these operations, and pass on the answer to each."""
        try:
            answers = await self._patiently(batch, tries_max)
        except LeaseLost:
            self._refuse(batch)
            return
        except StoreGone as gone:
            self._host.lose_store(gone)
            for _, then in batch:
                then(gone)
            return
        except PreconditionFailed:
            for entry in batch:
                await self._commit([entry])
            return
        except Exception as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._commit(batch[:middle], PART_TRIES_MAX)
                await self._commit(batch[middle:], PART_TRIES_MAX)
                return
            log.exception("an operation cannot be written: %s", _named(batch[0][0]))
            refused = isinstance(error, StoreError)
            answers = [error if refused else StoreError(f"the write failed: {type(error).__name__}: {error}")]
        self._answers += zip([then for _, then in batch], answers, strict=True)
        if self._queue:
            asyncio.get_running_loop().call_soon(
                self._pass_on_answers
            )  # after the next batch went to the store
        else:
            self._pass_on_answers()

    def _pass_on_answers(self) -> None:
        answers, self._answers = self._answers, []
        for then, answer in answers:
            try:
                then(answer)
            except Exception:
                # The others still get their answers, and the writer goes on.
                log.exception("the node failed to handle the answer to an operation")

    async def _patiently(self, batch: list[tuple[Op, Then]], tries_max: int) -> list[Any]:
        """Commit. If the store is away or cannot write, wait and try again."""
        delay_s, tries = AGAIN_MIN_S, 0
        self._trying, self._tried_since, self._is_sent = batch, self._environment.monotonic(), False
        while True:
            asking = False
            try:
                if self._in_doubt:
                    await self._reconcile()
                ops = [op for op, _ in batch]
                if not self._host.has_lease() and any(type(op) is not Start for op in ops):
                    raise LeaseLost("this node lost its lease")
                asking = True
                answers = await self._store.commit(self._node, ops) if ops else []
            except StoreFull as error:
                self.trouble = error  # nothing of it was written
            except StoreUnreachable as error:
                self.trouble, self._in_doubt, self._is_sent = (
                    error,
                    True,
                    self._is_sent or (asking and error.maybe_done),
                )
            except (StoreError, PreconditionFailed):
                self._tried_since = None
                raise
            except Exception as error:
                tries += 1
                self._in_doubt = self._is_sent = True
                if tries >= tries_max:
                    self._tried_since = None
                    raise
                log.warning("a commit failed with an unexpected error: %s: %s", type(error).__name__, error)
            else:
                self.trouble = self._tried_since = None
                self.commits += 1
                self.operations += len(ops)
                return answers
            self._resting = True
            await self._environment.sleep(delay_s * (0.5 + self._environment.random.random()))
            self._resting = False
            delay_s = min(delay_s * 2, AGAIN_MAX_S)

    async def _reconcile(self) -> None:
        """Reconcile what this node has with the store. Nothing else is written before that has worked. An error here is
        not caused by the operations that wait, so it counts as a store that cannot be reached."""
        self._in_doubt = (
            False  # set before it looks, so that a doubt that comes meanwhile makes it look again
        )
        self._pass_on_answers()  # otherwise the node would not know yet what the last commit gave it
        try:
            await self._host.reconcile()
        except (StoreUnreachable, StoreGone):
            raise
        except Exception as error:
            if not isinstance(error, StoreFull):
                log.exception("the node failed to reconcile what it has with the store")
            raise StoreUnreachable(str(error)) from error

    def withdraw_starts(self, after_s: float, run_ids: set[str]) -> StoreError | None:
        """If the store has not answered for `after_s`, withdraw the starts of these runs that are certainly not
        written.

        They will not be written later, and each fails with the trouble of the store. Return the trouble; it also
        concerns the starts that may be written. Return None if the store works.
        """
        if self._tried_since is None or self._environment.monotonic() - self._tried_since < after_s:
            return None
        trouble = self.trouble or StoreUnreachable(
            f"the database has not answered for {after_s:g} s: check the database and the network to it"
        )
        withdrawn = _take_starts(self._queue, run_ids)
        if self._resting and not self._is_sent:
            withdrawn += _take_starts(self._trying, run_ids)
        for op, then in withdrawn:
            then(type(trouble)(f"run {_started_by(op)!r} was not started: {trouble}"))
        return trouble


def _take_starts(entries: list[tuple[Op, Then]], run_ids: set[str]) -> list[tuple[Op, Then]]:
    """Remove the operations that start one of these runs from the entries, and return them."""
    taken = [entry for entry in entries if _started_by(entry[0]) in run_ids]
    if taken:
        entries[:] = [entry for entry in entries if _started_by(entry[0]) not in run_ids]
    return taken


def _started_by(op: Op) -> str | None:
    """Return the id of the run that the operation starts, if it starts one."""
    run = op.run if type(op) is Start else op.begin if type(op) is Hop else None
    return None if run is None else run.id


def _named(op: Op) -> str:
    """Describe an operation without its payload, which may be secret."""
    return f"{type(op).__name__} of run {op.run.id if isinstance(op, Start) else op.run_id}"
