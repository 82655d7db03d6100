"""The desk of a server: the same protocol as `LocalDesk`, over HTTP. Each method is one route of the server's table.

The identity only says which namespace is meant. Who asks, and what they may do, the server finds out from the token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from holdfast.access import Identity
from holdfast.config import Config
from holdfast.desk import (
    AgentsSeen,
    AlertSeen,
    LaneSeen,
    Resolve,
    Started,
    StartRequest,
    TokenMade,
    answer_of,
)
from holdfast.durations import Eta
from holdfast.environment import Environment
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    UnknownAct,
    UnknownRun,
    UnknownWorkflow,
    UpdateTimeout,
    WrongState,
)
from holdfast.filters import unknown_workflow
from holdfast.gates import Placed
from holdfast.graph.graph import Graph
from holdfast.logs import LogFilter, LogInfo
from holdfast.model import (
    ActOptions,
    ActRow,
    ActRun,
    Attempt,
    Breaker,
    BreakerState,
    Declaration,
    Hold,
    HoldScope,
    JournalEntry,
    Lane,
    NewToken,
    Poison,
    RunRow,
    RunState,
    SignalRow,
    StepRow,
    TokenRow,
)
from holdfast.remote import rows
from holdfast.remote.transport import MaybeDone, Reply, Transport, error_of
from holdfast.store.answers import Backlog, UpdateEnd
from holdfast.store.forks import Forked
from holdfast.store.reads import RunFilter
from holdfast.supervisor.health import examine
from holdfast.supervisor.outlook import Outlook
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of

T = TypeVar("T")

PAGE = 200
"""How much a server puts on one page."""
LOGS_MAX = 5_000
NO_NAME = "there is nothing of this name here"


class RemoteDesk:
    """A desk that asks a server."""

    def __init__(self, transport: Transport, config: Config) -> None:
        self._transport, self._config = transport, config

    @property
    def _environment(self) -> Environment:
        return self._transport.environment

    async def _get(
        self,
        who: Identity,
        path: str,
        gives: type[T],
        query: Mapping[str, Any] | None = None,
        unknown: Callable[[], HoldfastError] | None = None,
        **more: Any,
    ) -> T:
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        return await self._transport.ask(
            "GET", path, gives, query=given, namespace=who.namespace, unknown=unknown, **more
        )

    async def _post(
        self,
        who: Identity,
        path: str,
        gives: type[T],
        body: Any = None,
        unknown: Callable[[], HoldfastError] | None = None,
        **more: Any,
    ) -> T:
        return await self._transport.ask(
            "POST",
            path,
            gives,
            body=requests.Nothing() if body is None else body,
            namespace=who.namespace,
            unknown=unknown,
            **more,
        )

    async def _of_run(
        self, who: Identity, run: str, part: str, gives: type[T], query: Mapping[str, Any] | None = None
    ) -> T:
        return await self._get(who, _run(run) + part, gives, query, lambda: UnknownRun.of(run))

    # --- callers ------------------------------------------------------------------------------------------------------

    async def start(self, who: Identity, request: StartRequest) -> Started:
        headers = {} if request.key is None or request.id is not None else {"Idempotency-Key": request.key}
        if request.id is None and request.key is None:
            request = msgspec.structs.replace(request, id=self._environment.new_id())
        found = await self._post(
            who,
            "/v1/runs",
            answers.Started,
            requests.Start(**_start_fields(request)),
            lambda: UnknownWorkflow(
                f"no workflow is called {request.workflow!r} there: start a process that has it with `holdfast up FILE`"
            ),
            headers=headers,
        )
        return Started(found.id, found.new)

    async def start_many(
        self, who: Identity, requested: Sequence[StartRequest]
    ) -> list[Started | HoldfastError]:
        made: list[Started | HoldfastError] = []
        for start in range(0, len(requested), requests.ITEMS_MAX):
            part = [
                request
                if request.id is not None or request.key is not None
                else msgspec.structs.replace(request, id=self._environment.new_id())
                for request in requested[start : start + requests.ITEMS_MAX]
            ]
            items = [requests.StartItem(**_start_fields(one), key=one.key) for one in part]
            found = await self._post(who, "/v1/runs/batch", answers.StartedItems, requests.Batch(items=items))
            made += [self._started(item, one) for item, one in zip(found.items, part, strict=True)]
        return made

    def _started(self, item: answers.StartedItem, request: StartRequest) -> Started | HoldfastError:
        if item.run is not None:
            return Started(item.run.id, item.run.new)
        reply = Reply(item.status, msgspec.json.encode(item.problem), {})
        return error_of(
            reply,
            lambda: UnknownWorkflow(f"no workflow is called {request.workflow!r} there"),
            self._transport.shown,
        )

    async def signal(self, who: Identity, run: str, name: str, payload: bytes, key: str | None) -> bool:
        body = requests.Signal(name=name, data=Raw(payload), key=key or self._environment.new_id())
        found = await self._post(who, f"{_run(run)}/signals", answers.Sent, body, lambda: UnknownRun.of(run))
        return found.new

    async def update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None, wait_s: float | None
    ) -> bytes:
        """Call an update. The server waits for the answer as long as it may, and is then asked again."""
        monotonic = self._environment.monotonic
        key, until = key or self._environment.new_id(), None if wait_s is None else monotonic() + wait_s
        while True:
            left_s = requests.WAIT_MAX_S if until is None else until - monotonic()
            wait = max(0.0, min(left_s, requests.WAIT_MAX_S))
            body = requests.Update(name=name, key=key, data=Raw(payload), wait_s=wait)
            found = await self._post(
                who, f"{_run(run)}/updates", answers.Reply, body, lambda: UnknownRun.of(run), wait_s=wait
            )
            if found.answered:
                return bytes(found.reply)
            if until is not None and monotonic() >= until:
                raise UpdateTimeout(
                    f"the update {name!r} of run {run!r} is recorded under the key {key!r} and has no answer yet: "
                    f"`holdfast why {run}` says what it waits for; call again with this key"
                )

    async def send_update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None
    ) -> SignalRow:
        """Record a call of an update, and return its row."""
        key = key or self._environment.new_id()
        try:
            await self.update(who, run, name, payload, key, 0.0)
        except UpdateTimeout:
            pass
        except (Conflict, WrongState, InvalidInput):
            raise
        except HoldfastError:
            pass  # it is answered, by an error, which the row has
        for row in await self.signals(who, run):
            if row.update == name and row.key == key:
                return row
        raise UnknownRun.of(run)

    async def answer(self, who: Identity, row: SignalRow, name: str, patience_s: float | None) -> bytes:
        """Wait for the answer to an update that was sent."""
        if row.answer is not None:
            return answer_of(UpdateEnd(row.id, row.answer, row.reply, None), row.run_id, name)
        return await self.update(who, row.run_id, name, row.payload, row.key, patience_s)

    # --- readers ------------------------------------------------------------------------------------------------------

    async def now(self, who: Identity) -> float:
        found = await self._get(who, "/v1/me", answers.Me)
        return self._environment.now() if found.now is None else rows.at(found.now)

    async def runs(self, who: Identity, where: RunFilter) -> list[RunRow]:
        return [row for row, _ in await self._runs(who, where, with_eta=False)]

    async def runs_and_etas(self, who: Identity, where: RunFilter) -> tuple[list[RunRow], dict[str, Eta]]:
        """Return runs, and when each of them will probably end."""
        found = await self._runs(who, where, with_eta=True)
        return [row for row, _ in found], {row.id: eta for row, eta in found if eta is not None}

    async def _runs(
        self, who: Identity, where: RunFilter, *, with_eta: bool
    ) -> list[tuple[RunRow, Eta | None]]:
        if where.namespace is not None:
            who = who.within(where.namespace)
        found: list[tuple[RunRow, Eta | None]] = []
        query: dict[str, Any] = {
            "workflow": where.workflow,
            "state": list(where.states) or None,
            "since": _moment(where.since),
            "until": _moment(where.until),
            "error": where.error,
            "prefix": where.prefix,
            "before": None if where.before is None else path_of(where.before[1]),
            "pages": where.has_pages,
            "eta": with_eta,
            **{f"tag.{name}": value for name, value in where.tags.items()},
        }
        while len(found) < where.limit:
            query["limit"] = min(PAGE, where.limit - len(found))
            page = await self._get(who, "/v1/runs", answers.Runs, query)
            found += [(rows.run(one), rows.eta(one.eta)) for one in page.items]
            if page.next is None:
                break
            query |= {"cursor": page.next, "before": None}
        return found

    async def counts(self, who: Identity) -> dict[str, int]:
        return (await self._get(who, "/v1/runs/counts", answers.Counts)).runs

    async def run(self, who: Identity, run: str) -> RunRow:
        return rows.run(await self._of_run(who, run, "", answers.WholeRun))

    async def run_after(self, who: Identity, run: str, mark: str, wait_s: float) -> RunRow:
        found = await self._get(
            who,
            _run(run),
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
        return (await self._post(who, "/v1/runs/ended", answers.EndedRuns, body, wait_s=wait_s)).items

    async def steps(self, who: Identity, run: str, after: int, limit: int) -> list[StepRow]:
        found: list[StepRow] = []
        while len(found) < limit:
            query = {"after": after, "limit": min(PAGE, limit - len(found))}
            page = await self._of_run(who, run, "/steps", answers.Steps, query)
            found += [rows.step(run, one) for one in page.items]
            if page.next is None:
                break
            after = page.next
        return found

    async def step(self, who: Identity, run: str, n: int) -> StepRow:
        return rows.step(run, await self._of_run(who, run, f"/steps/{n}", answers.Step))

    async def attempts(self, who: Identity, run: str) -> list[Attempt]:
        found = await self._of_run(who, run, "/attempts", answers.Attempts)
        return [rows.attempt(run, one) for one in found.items]

    async def journal_of(self, who: Identity, run: str, limit: int) -> list[JournalEntry]:
        found = await self._of_run(who, run, "/journal", answers.Journal, {"limit": min(limit, PAGE)})
        return [rows.entry(one) for one in found.items]

    async def children(self, who: Identity, run: str) -> list[RunRow]:
        return [rows.run(one) for one in (await self._of_run(who, run, "/children", answers.Runs)).items]

    async def started_runs(self, who: Identity, run: str) -> list[RunRow]:
        return [rows.run(one) for one in (await self._of_run(who, run, "/started", answers.Runs)).items]

    async def signals(self, who: Identity, run: str) -> list[SignalRow]:
        found = await self._of_run(who, run, "/signals", answers.Signals)
        return [rows.signal(run, one) for one in found.items]

    async def why(self, who: Identity, run: str) -> str:
        return (await self._of_run(who, run, "/why", answers.Why)).why

    async def log_counts(self, who: Identity, run: str) -> dict[int, int]:
        return (await self._of_run(who, run, "/logs/counts", answers.LogCounts)).lines

    async def logs(self, who: Identity, run: str, where: LogFilter, limit: int) -> list[LogInfo]:
        query = {
            "step": where.n,
            "attempt": where.attempt,
            "level": _level(where.level),
            "limit": min(limit, LOGS_MAX),
        }
        found = await self._of_run(who, run, "/logs", answers.Lines, query)
        return [LogInfo(*msgspec.structs.astuple(one)) for one in found.items]

    async def graph(self, who: Identity, run: str) -> Graph:
        found = await self._of_run(who, run, "/graph", answers.Drawing)
        return msgspec.convert(found.graph, Graph)

    async def outlook(self, who: Identity, run: RunRow, steps: Sequence[StepRow]) -> Outlook:
        return rows.outlook(run.id, await self._of_run(who, run.id, "/eta", answers.Outlook))

    async def etas(self, who: Identity, runs: Sequence[RunRow]) -> dict[str, Eta]:
        found = {}
        for run in runs:
            if run.state is RunState.RUNNING:
                eta = (await self.outlook(who, run, ())).eta
                if eta is not None:
                    found[run.id] = eta
        return found

    async def workflows(self, who: Identity) -> list[Declaration]:
        return [
            rows.declaration(one) for one in (await self._get(who, "/v1/workflows", answers.Workflows)).items
        ]

    async def workflow(self, who: Identity, name: str) -> list[Declaration]:
        found = await self._get(
            who,
            f"/v1/workflows/{path_of(name)}",
            answers.WorkflowVersions,
            unknown=lambda: UnknownWorkflow(f"no workflow is called {name!r} there"),
        )
        return [rows.declaration(one) for one in found.versions]

    async def demand_workflow(self, who: Identity, name: str) -> None:
        known = sorted({one.name for one in await self.workflows(who)})
        if any(one == name or one.endswith(f".{name}") for one in known):
            return
        if not await self.runs(who, RunFilter(workflow=name, limit=1)):
            raise unknown_workflow(name, known)

    # --- operators, about one run -------------------------------------------------------------------------------------

    async def _steer(self, who: Identity, run: str, verb: str, body: Any) -> RunState:
        path = f"{_run(run)}/{verb}"
        try:
            return (await self._post(who, path, answers.State, body, lambda: UnknownRun.of(run))).state
        except MaybeDone:
            now = await self.run(who, run)
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
        found = await self._post(who, f"{_run(run)}/retry", answers.Started, None, lambda: UnknownRun.of(run))
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
            input=_raw(input, "input"),
            results={key: _raw(value, f"set[{key!r}]") for key, value in (results or {}).items()},
            id=new_id,
        )
        # Without an id, each fork is another run. So it is not sent again if nobody knows what became of it.
        found = await self._post(
            who,
            f"{_run(run)}/fork",
            answers.Forked,
            body,
            lambda: UnknownRun.of(run),
            is_repeatable=new_id is not None,
        )
        return Forked(found.id, found.kept, found.undone)

    # --- operators, about the store -----------------------------------------------------------------------------------

    async def agents(self, who: Identity, *, everything: bool = False) -> AgentsSeen:
        found = await self._get(who, "/v1/agents", answers.Agents, {"all": everything})
        now = self._environment.now() if found.now is None else rows.at(found.now)
        nodes = [examine(rows.node(one), (one.has, one.runs), now) for one in found.items]
        return AgentsSeen(nodes, rows.leader(found.leader), now)

    async def lanes(self, who: Identity) -> list[LaneSeen]:
        found = await self._get(who, "/v1/lanes", answers.Lanes)
        return [
            LaneSeen(
                Lane(one.id, one.step, tuple(one.needs), one.undo, one.depends),
                Backlog(one.ready, rows.maybe(one.since)),
            )
            for one in found.items
        ]

    async def holds(self, who: Identity) -> list[Hold]:
        return [rows.hold(one) for one in (await self._get(who, "/v1/holds", answers.Holds)).items]

    async def add_hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Placed:
        body = requests.HoldPlace(scope=scope.value, value=value, note=note)
        found = await self._post(who, "/v1/holds", answers.HoldPlaced, body)
        return Placed(rows.hold(found.hold), found.new, found.known)

    async def remove_hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Hold:
        body = requests.HoldPlace(scope=scope.value, value=value, note=note)
        held = await self.holds(who)
        try:
            return rows.hold(await self._post(who, "/v1/holds/release", answers.Hold, body))
        except MaybeDone:
            now = await self.holds(who)
            gone = [one for one in held if one.scope is scope and one not in now]
            if len(gone) != 1:
                raise
            return gone[0]

    async def breakers(self, who: Identity) -> list[Breaker]:
        found = await self._get(who, "/v1/breakers", answers.Breakers)
        return [rows.breaker(one) for one in found.items]

    async def force_breaker(self, who: Identity, name: str, state: BreakerState, note: str = "") -> Breaker:
        return await self._breaker(who, name, "open" if state is BreakerState.OPEN else "close", note)

    async def reset_breaker(self, who: Identity, name: str, note: str = "") -> Breaker:
        return await self._breaker(who, name, "reset", note)

    async def _breaker(self, who: Identity, name: str, verb: str, note: str) -> Breaker:
        path = f"/v1/breakers/{path_of(name)}/{verb}"
        unknown = lambda: WrongState(f"{name!r} has no breaker: `holdfast breakers` lists them")  # noqa: E731
        return rows.breaker(await self._post(who, path, answers.Breaker, requests.Noted(note=note), unknown))

    async def quarantine(self, who: Identity) -> list[Poison]:
        found = await self._get(who, "/v1/quarantine", answers.Quarantine)
        return [rows.poison(one) for one in found.items]

    async def quarantined(self, who: Identity, run: str) -> set[str]:
        found = await self._get(
            who, "/v1/quarantine", answers.Quarantine, {"run": path_of(run)}, lambda: UnknownRun.of(run)
        )
        return {one.fingerprint for one in found.items}

    async def resolve(
        self, who: Identity, act: Resolve, fingerprint: str, *, note: str = "", result: Any = None
    ) -> int:
        return await self.resolve_steps(who, act, fingerprint, note=note, result=result)

    async def resolve_steps(
        self,
        who: Identity,
        act: Resolve,
        fingerprint: str | None = None,
        *,
        run_id: str | None = None,
        note: str = "",
        result: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        if run_id is not None:
            if fingerprint is not None:
                raise HoldfastError("say which steps: a fingerprint, or a run, not both, over a server")
            whole = requests.Resolve(act=act, note=note, result=_raw(result, "result"))
            path, unknown = f"{_run(run_id)}/quarantine", UnknownRun.of(run_id)
            return (await self._post(who, path, answers.Resolved, whole, lambda: unknown)).steps
        if fingerprint is None:
            raise HoldfastError(
                "say which steps: a fingerprint, as `holdfast quarantine` lists them, or a run"
            )
        body: Any = requests.Noted(note=note)
        if act == "skip":
            body = requests.ResolveSkip(note=note, result=_raw(result, "result"))
        try:
            path = f"/v1/quarantine/{path_of(fingerprint)}/{act}"
            done = (await self._post(who, path, answers.Resolved, body, lambda: UnknownRun(NO_NAME))).steps
        except UnknownRun:
            return 0
        if progress is not None:
            progress(done)
        return done

    async def alerts(self, who: Identity, *, everything: bool, limit: int) -> list[AlertSeen]:
        found = await self._get(who, "/v1/alerts", answers.Alerts, {"all": everything, "limit": limit})
        seen = []
        for one in found.items:
            row, deliveries = rows.alert(one)
            seen.append(AlertSeen(row, one.message, deliveries))
        return seen

    async def clear_alert(self, who: Identity, alert: int) -> bool:
        return (await self._post(who, f"/v1/alerts/{alert}/clear", answers.Cleared)).cleared

    async def journal(self, who: Identity, limit: int) -> list[JournalEntry]:
        found = await self._get(who, "/v1/journal", answers.Journal, {"limit": min(limit, PAGE)})
        return [rows.entry(one) for one in found.items]

    # --- acts on many runs --------------------------------------------------------------------------------------------

    async def plan(self, who: Identity, verb: str, where: RunFilter, how: ActOptions, note: str) -> ActRow:
        """Plan an act on many runs. It is not sent again if nobody knows what became of it: that would be another plan."""
        if where.namespace is not None:
            who = who.within(where.namespace)
        body = requests.Plan(
            verb=verb,  # type: ignore[arg-type]  # whoever calls this has checked it
            state=list(where.states),
            workflow=where.workflow,
            tags=where.tags,
            since=_moment(where.since),
            until=_moment(where.until),
            error=where.error,
            prefix=where.prefix,
            note=note,
            force=how.force,
            start=how.start,
        )
        return rows.act(await self._post(who, "/v1/acts", answers.Act, body, is_repeatable=False))

    async def act(self, who: Identity, act: str) -> ActRow:
        return rows.act(await self._get(who, _act(act), answers.Act, unknown=lambda: _no_act(act)))

    async def acts(self, who: Identity, limit: int) -> list[ActRow]:
        found = await self._get(who, "/v1/acts", answers.Acts, {"limit": limit})
        return [rows.act(one) for one in found.items]

    async def carry_out(self, who: Identity, act: str, wait_s: float) -> ActRow:
        """Let the server carry out an act for a while, and return how far it is."""
        body = requests.CarryOut(wait_s=wait_s)
        found = await self._post(
            who, f"{_act(act)}/go", answers.Act, body, lambda: _no_act(act), wait_s=wait_s
        )
        return rows.act(found)

    async def stop_act(self, who: Identity, act: str) -> bool:
        await self._post(who, f"{_act(act)}/stop", answers.Act, None, lambda: _no_act(act))
        return True

    async def act_runs(
        self, who: Identity, act: str, fates: Sequence[str], after: str, limit: int
    ) -> list[ActRun]:
        query = {"fate": list(fates) or None, "after": after, "limit": limit}
        found = await self._get(who, f"{_act(act)}/runs", answers.ActRuns, query, lambda: _no_act(act))
        return [rows.act_run(one) for one in found.items]

    # --- tokens -------------------------------------------------------------------------------------------------------

    async def tokens(self, who: Identity, limit: int) -> list[TokenRow]:
        found = await self._get(who, "/v1/tokens", answers.Tokens)
        return [rows.token(one) for one in found.items[:limit]]

    async def create_token(self, who: Identity, new: NewToken) -> TokenMade:
        """Make a token. This is not sent again if nobody knows what became of it: revoke the first one then."""
        body = requests.TokenCreate(
            role=new.role,  # type: ignore[arg-type]  # the server checks it
            name=new.name,
            namespaces=json.loads(new.namespaces),
            can=json.loads(new.can),
            payloads=new.payloads,
            expires_s=new.expires_s,
        )
        made = await self._post(who, "/v1/tokens", answers.TokenMade, body, is_repeatable=False)
        return TokenMade(rows.token(made.token), made.secret)

    async def rotate_token(
        self, who: Identity, token: str, grace_s: float, expires_s: float | None
    ) -> TokenMade:
        body = requests.TokenRotate(grace_s=grace_s, expires_s=expires_s)
        made = await self._post(
            who, f"/v1/tokens/{path_of(token)}/rotate", answers.TokenMade, body, is_repeatable=False
        )
        return TokenMade(rows.token(made.token), made.secret)

    async def revoke_token(self, who: Identity, token: str) -> bool:
        return (await self._post(who, f"/v1/tokens/{path_of(token)}/revoke", answers.TokenRevoked)).revoked


def _run(run: str) -> str:
    if not run:
        raise UnknownRun.of(run)
    try:
        return f"/v1/runs/{path_of(run)}"
    except UnicodeEncodeError:
        raise UnknownRun.of(run) from None


def _act(act: str) -> str:
    return f"/v1/acts/{path_of(act)}"


def _no_act(act: str) -> UnknownAct:
    return UnknownAct(f"no act has the id {act!r}: `holdfast acts` lists them")


def _start_fields(request: StartRequest) -> dict[str, Any]:
    return {
        "workflow": request.workflow,
        "input": Raw(request.input),
        "version": request.version,
        "id": request.id,
        "tags": dict(request.tags),
        "priority": request.priority,
        "timeout_s": request.timeout_s,
    }


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, list) else str(value)


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


def _level(number: int) -> str | None:
    import logging  # noqa: PLC0415  only for the names of levels

    return logging.getLevelName(number) if number else None


def _raw(value: Any, what: str) -> Raw:
    try:
        return Raw(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError) as wrong:
        raise InvalidInput(f"{what}: {wrong}") from None


_EMPTY = RunRow(
    *("", "", "", "", RunState.PENDING, 0, None, 0, b"{}", b"", None, None, None, None, None, None, 0, 0),
    *(None, None, None, None, None, 0.0, None, None),
)
