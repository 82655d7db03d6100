"""The one writer of a node: group commit.

What is submitted while a commit is in flight becomes the next one. A batch is optimistic: if any precondition fails,
nothing of it is written and its operations are asked again one at a time, so that each gets its own answer. When more is
queued, it goes to the store before the answers to the last batch are told: so the store works on the one while this
process goes on with the other.

While the store is away, or cannot write, the writer keeps its batch and tries again; whether a lost commit happened shows when
the batch is repeated, because every operation names a fence that its first success raised. So an operation leaves the writer
only by an answer. What fails in a way that nobody foresaw is tried again, too, a few times, and then in halves: what cannot be
written is found, and told so alone.
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
"""How often a commit is tried that fails in a way nobody foresaw. What comes of the moment (a driver in the middle of losing its
connection) is over by then: in about half a second."""
PART_TRIES_MAX = 2
"""The same of a part of one: the whole was tried often enough."""
AGAIN_MIN_S, AGAIN_MAX_S = 0.05, 1.0
"""Between two tries of a commit; doubles with each."""

Then = Callable[[Any], None]
"""Called with the operation's answer, or with the exception that ended it."""


class WriterHost(Protocol):
    """What a writer needs of whoever it writes for."""

    def has_lease(self) -> bool:
        """Asked before every commit: a process that was paused writes nothing."""

    async def reconcile(self) -> None:
        """An answer was lost, and the store is back: see what the store believes, before anything else is written."""

    def lose_store(self, gone: StoreGone) -> None:
        """There is no store any more."""


class Commits(Protocol):
    """Where a writer writes: `Batches` of the store."""

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
        self._untold: list[tuple[Then, Any]] = []
        """Who waits for answers that are here already."""
        self._closing = False
        self._successor: Writer | None = None
        self.commits = 0
        self.operations = 0
        self._in_doubt = False
        """The store may say that this node holds more than it knows."""
        self._trying: list[tuple[Op, Then]] = []
        self._tried_since: float | None = None
        """Since when the present batch is being tried."""
        self._is_sent = False
        """It may be written: a try of it was not answered."""
        self._resting = False
        """No try of it is under way at this moment."""
        self.trouble: StoreError | None = None
        """Why the store does not answer at the moment."""

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

    async def _commit(self, batch: list[tuple[Op, Then]], tries_max: int = TRIES_MAX) -> None:
        """Write these, and tell each what became of it."""
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
            log.exception("this cannot be written: %s", _named(batch[0][0]))
            refused = isinstance(error, StoreError)
            answers = [error if refused else StoreError(f"the write failed: {type(error).__name__}: {error}")]
        self._untold += zip([then for _, then in batch], answers, strict=True)
        if self._queue:
            asyncio.get_running_loop().call_soon(self._tell)  # after the next batch went to the store
        else:
            self._tell()

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for then, answer in untold:
            try:
                then(answer)
            except Exception:
                log.exception("telling an answer")  # the others still get theirs, and the writer goes on

    async def _patiently(self, batch: list[tuple[Op, Then]], tries_max: int) -> list[Any]:
        """Commit, waiting out a store that is away or cannot write."""
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
                log.warning("a commit failed in an unknown way: %s: %s", type(error).__name__, error)
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
        """See what the store believes that this node holds. Until that is done, nothing is written: whatever keeps it from being
        done is not the fault of what waits."""
        self._in_doubt = False  # before it looks: what is doubted meanwhile is looked at again
        self._tell()  # or what the last commit gave this node would seem unknown to it
        try:
            await self._host.reconcile()
        except (StoreUnreachable, StoreGone):
            raise
        except Exception as error:
            if not isinstance(error, StoreFull):
                log.exception("looking what this node holds")
            raise StoreUnreachable(str(error)) from error

    def withdraw_starts(self, after_s: float, run_ids: set[str]) -> StoreError | None:
        """If the store has not answered for so long, whoever waits for the start of one of these is told. What was never sent, or is
        known not to be written, is withdrawn: it will not happen. Returns the trouble, for those of whom nobody knows; None when
        all is well."""
        if self._tried_since is None or self._environment.monotonic() - self._tried_since < after_s:
            return None
        trouble = self.trouble or StoreUnreachable(
            f"the database has not answered for {after_s:g} s: check it, and the way to it"
        )
        withdrawn = _take_starts(self._queue, run_ids)
        if self._resting and not self._is_sent:
            withdrawn += _take_starts(self._trying, run_ids)
        for op, then in withdrawn:
            then(type(trouble)(f"run {_started_by(op)!r} was not started: {trouble}"))
        return trouble


def _take_starts(entries: list[tuple[Op, Then]], run_ids: set[str]) -> list[tuple[Op, Then]]:
    """Take out what starts one of these runs."""
    taken = [entry for entry in entries if _started_by(entry[0]) in run_ids]
    if taken:
        entries[:] = [entry for entry in entries if _started_by(entry[0]) not in run_ids]
    return taken


def _started_by(op: Op) -> str | None:
    """The run that the operation starts."""
    run = op.run if type(op) is Start else op.begin if type(op) is Hop else None
    return None if run is None else run.id


def _named(op: Op) -> str:
    """Not what it says: that may be a secret."""
    return f"{type(op).__name__} of run {op.run.id if isinstance(op, Start) else op.run_id}"
