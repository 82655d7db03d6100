"""The run desk of a server, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from holdfast.access import Identity
from holdfast.desk.overview import CountedRuns, Explained
from holdfast.durations import Eta
from holdfast.errors import InvalidInput, UnknownRun
from holdfast.graph.graph import Graph
from holdfast.logs import LogFilter, LogInfo
from holdfast.model import Attempt, JournalEntry, RunRow, RunState, StepRow
from holdfast.remote import rows
from holdfast.remote.starts import moment
from holdfast.remote.transport import MaybeDone, Transport
from holdfast.store.forks import Forked
from holdfast.store.reads import RunFilter
from holdfast.supervisor.outlook import Outlook
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of

T = TypeVar("T")

PAGE = 200
"""How much a server puts on one page."""
LOGS_PAGE = 5_000
"""How many lines of a run a server gives at once."""


class RemoteRunDesk:
    """A run desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, who: Identity, run: str) -> RunRow:
        return rows.run(await part_of(self._transport, who, run, "", answers.WholeRun))

    async def after(self, who: Identity, run: str, mark: str, wait_s: float) -> RunRow:
        found = await self._transport.get(
            who,
            run_path(run),
            answers.WholeRun,
            {"wait_s": min(wait_s, requests.WAIT_MAX_S)},
            lambda: UnknownRun.of(run),
            headers={"If-None-Match": f'"{mark}"'},
            wait_s=wait_s,
        )
        return rows.run(found)

    async def ended(self, who: Identity, runs: Sequence[str], wait_s: float) -> list[RunRow]:
        found = await self.ends(who, runs, wait_s)
        return [
            msgspec.structs.replace(
                _EMPTY, id=one.id, state=one.state, output=bytes(one.output), error=rows.error(one.error)
            )
            for one in found
        ]

    async def ends(self, who: Identity, runs: Sequence[str], wait_s: float) -> list[answers.EndedRun]:
        """Return those of these runs that have ended or are stuck."""
        body = requests.Ended(runs=list(runs), wait_s=min(wait_s, requests.WAIT_MAX_S))
        return (
            await self._transport.post(
                who, "/v1/runs/ended", answers.EndedRuns, body, wait_s=wait_s, is_traced=False
            )
        ).items

    async def counts(self, who: Identity) -> dict[str, int]:
        return (await self._transport.get(who, "/v1/runs/counts", CountedRuns)).runs

    async def steps(self, who: Identity, run: str, after: int, limit: int) -> list[StepRow]:
        found: list[StepRow] = []
        while len(found) < limit:
            query = {"after": after, "limit": min(PAGE, limit - len(found))}
            page = await part_of(self._transport, who, run, "/steps", answers.Steps, query)
            found += [rows.step(run, one) for one in page.items]
            if page.next is None:
                break
            after = page.next
        return found

    async def step(self, who: Identity, run: str, n: int) -> StepRow:
        return rows.step(run, await part_of(self._transport, who, run, f"/steps/{n}", answers.Step))

    async def attempts(self, who: Identity, run: str) -> list[Attempt]:
        found = await part_of(self._transport, who, run, "/attempts", answers.Attempts)
        return [rows.attempt(run, one) for one in found.items]

    async def journal(self, who: Identity, run: str, limit: int) -> list[JournalEntry]:
        found = await part_of(
            self._transport, who, run, "/journal", answers.Journal, {"limit": min(limit, PAGE)}
        )
        return [rows.entry(one) for one in found.items]

    async def children(self, who: Identity, run: str) -> list[RunRow]:
        return [
            rows.run(one)
            for one in (await part_of(self._transport, who, run, "/children", answers.Runs)).items
        ]

    async def started(self, who: Identity, run: str) -> list[RunRow]:
        return [
            rows.run(one)
            for one in (await part_of(self._transport, who, run, "/started", answers.Runs)).items
        ]

    async def why(self, who: Identity, run: str) -> str:
        return (await part_of(self._transport, who, run, "/why", Explained)).text

    async def logs(
        self, who: Identity, run: str, where: LogFilter, limit: int | None = None, skip: int = 0
    ) -> list[LogInfo]:
        query = {"step": where.n, "attempt": where.attempt, "level": _level(where.level)}
        made: list[LogInfo] = []
        while True:
            most = LOGS_PAGE if limit is None else min(limit - len(made), LOGS_PAGE)
            page = {**query, "limit": most, "skip": skip + len(made)}
            found = await part_of(self._transport, who, run, "/logs", answers.Lines, page)
            made += [LogInfo(*msgspec.structs.astuple(one)) for one in found.items]
            if not found.more or not found.items or len(made) == limit:
                return made

    async def log_counts(self, who: Identity, run: str) -> dict[int, int]:
        return (await part_of(self._transport, who, run, "/logs/counts", answers.LogCounts)).lines

    async def graph(self, who: Identity, run: str) -> Graph:
        found = await part_of(self._transport, who, run, "/graph", answers.Drawing)
        return msgspec.convert(found.graph, Graph)

    async def outlook(self, who: Identity, run: RunRow, steps: Sequence[StepRow]) -> Outlook:
        return rows.outlook(run.id, await part_of(self._transport, who, run.id, "/eta", answers.Outlook))

    async def etas(self, who: Identity, runs: Sequence[RunRow]) -> dict[str, Eta]:
        found = {}
        for run in runs:
            if run.state is RunState.RUNNING:
                eta = (await self.outlook(who, run, ())).eta
                if eta is not None:
                    found[run.id] = eta
        return found

    # --- steering -----------------------------------------------------------------------------------------------------

    async def _steer(self, who: Identity, run: str, verb: str, body: Any) -> RunState:
        path = f"{run_path(run)}/{verb}"
        try:
            return (
                await self._transport.post(who, path, answers.State, body, lambda: UnknownRun.of(run))
            ).state
        except MaybeDone:
            now = await self.get(who, run)
            if verb == "release" and now.state is RunState.HELD:
                raise
            return now.state

    async def cancel(self, who: Identity, run: str, note: str = "", *, force: bool = False) -> RunState:
        return await self._steer(who, run, "cancel", requests.Cancel(note=note, force=force))

    async def hold(self, who: Identity, run: str, note: str = "") -> RunState:
        return await self._steer(who, run, "hold", requests.Noted(note=note))

    async def release(self, who: Identity, run: str, note: str = "") -> RunState:
        return await self._steer(who, run, "release", requests.Noted(note=note))

    async def skip(self, who: Identity, run: str, step: str | None = None, note: str = "") -> RunState:
        return await self._steer(who, run, "skip", requests.Skip(step=step, note=note))

    async def retry(self, who: Identity, run: str) -> str:
        found = await self._transport.post(
            who, f"{run_path(run)}/retry", answers.Started, None, lambda: UnknownRun.of(run)
        )
        return found.id

    async def fork(
        self,
        who: Identity,
        run: str,
        start: str | None = None,
        input: Any = None,
        results: Mapping[str, Any] | None = None,
        new_id: str | None = None,
    ) -> Forked:
        if results is not None and not isinstance(results, Mapping):
            raise InvalidInput(f"run.fork(set=…): give results by the keys of their steps, not {results!r}")
        body = requests.Fork(
            start=start,
            input=raw(input, "input"),
            results={key: raw(value, f"set[{key!r}]") for key, value in (results or {}).items()},
            id=new_id,
        )
        # Without an id, each fork is another run. So if the answer is lost, it is not sent again.
        found = await self._transport.post(
            who,
            f"{run_path(run)}/fork",
            answers.Forked,
            body,
            lambda: UnknownRun.of(run),
            is_repeatable=new_id is not None,
        )
        return Forked(found.id, found.kept, found.undone)

    # --- many runs ----------------------------------------------------------------------------------------------------

    async def list(self, who: Identity, where: RunFilter) -> list[RunRow]:
        return [rows.run(one) for one in await self.listed(who, where)]

    async def listed(
        self, who: Identity, where: RunFilter, *, eta: bool = False, words: bool = False
    ) -> Sequence[answers.Run]:
        """Return runs as a server lists them."""
        if where.namespace is not None:
            who = who.within(where.namespace)
        found: list[answers.Run] = []
        query: dict[str, Any] = {
            "workflow": where.workflow,
            "state": list(where.states) or None,
            "since": moment(where.since),
            "until": moment(where.until),
            "error": where.error,
            "prefix": where.prefix,
            "is": list(where.traits) or None,
            "before": None if where.before is None else path_of(where.before[1]),
            "pages": where.has_pages,
            "order": "oldest" if where.is_oldest_first else None,
            "eta": eta,
            "words": words,
            **{f"tag.{name}": value for name, value in where.tags.items()},
        }
        while len(found) < where.limit:
            query["limit"] = min(PAGE, where.limit - len(found))
            page = await self._transport.get(who, "/v1/runs", answers.Runs, query)
            found += page.items
            if page.next is None:
                break
            query |= {"cursor": page.next, "before": None}
        return found


async def part_of(
    transport: Transport,
    who: Identity,
    run: str,
    part: str,
    gives: type[T],
    query: Mapping[str, Any] | None = None,
) -> T:
    """Return a part of a run."""
    return await transport.get(who, run_path(run) + part, gives, query, lambda: UnknownRun.of(run))


def run_path(run: str) -> str:
    """Return the path of a run. Raise UnknownRun for what cannot be an id."""
    if not run:
        raise UnknownRun.of(run)
    try:
        return f"/v1/runs/{path_of(run)}"
    except UnicodeEncodeError:
        raise UnknownRun.of(run) from None


def _level(number: int) -> str | None:
    import logging  # noqa: PLC0415  only for the names of levels

    return logging.getLevelName(number) if number else None


def raw(value: Any, what: str) -> Raw:
    """Return a value as JSON. Raise InvalidInput if it cannot be that."""
    try:
        return Raw(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as wrong:
        raise InvalidInput(f"{what}: {wrong}") from None


_EMPTY = RunRow(
    *("", "", "", "", RunState.PENDING, 0, None, 0, b"{}", b"", None, None, None, None, None, None, 0, 0),
    *(None, None, None, None, None, 0.0, None, None),
)
