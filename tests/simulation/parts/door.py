"""The door, which some seeds play: servers, agents and programs that reach the store by HTTP alone, and a stranger with a
good token of another namespace. It is the ASGI application and the remote agent of the product, on a network in memory
(`tests/simulation/network.py`) that loses, doubles and delays requests and replies, and cuts streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

from holdfast.access import Role
from holdfast.access.tokens import ID_BYTES, SECRET_BYTES, make, namespaces
from holdfast.errors import HoldfastError
from holdfast.http import agents as door_agents
from holdfast.http.doorway import Doorway
from holdfast.http.watch import Open
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.namespaces import Namespaces, namespace_of, stored
from holdfast.node import Node
from holdfast.remote.connection import AgentConnection
from holdfast.remote.node import RemoteAgent, RemoteNode
from holdfast.remote.transport import Transport
from holdfast.store import nodes as store_nodes
from holdfast.store import remotes
from holdfast.store.sqlite.verbs import STATEMENTS
from holdfast.store.verbs import Verb
from holdfast.testing.world import Process
from holdfast.wire.agents import secret_of
from holdfast.wire.paths import path_of
from tests.simulation import program
from tests.simulation.ledger import ledger
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.network import HOP_S, SERVED, Exchange, ServerProcess, Wire, call_outside
from tests.simulation.nodes import WatchedExecutor, WatchedProcess
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.workflow.workflow import Workflow
    from tests.simulation.invariants import Checker, Commit, Step
    from tests.simulation.simulation import Simulation

URL = "https://door"
OTHER = "acme"
LOOKS = 20
"""How often a stranger looks for a step that runs, before it gives up reporting about one."""
SERVER, REMOTE, CLIENT, STRANGER = "server", "remote", "client", "stranger"
"""Words in the roles of a process. The last word of a remote one is its namespace."""
TOKENS = {CLIENT: Role.STARTER, STRANGER: Role.AGENT, "agent": Role.AGENT}
"""By the first of these words in the roles of a remote process, the role of its token."""
FORGED = b'"forged"'
CLOCK_S = 0.1
"""How far the clocks of processes here run ahead at most until a seed ends: they differ by more than real ones."""
FAULTS = ("the request", "the reply", "doubled", "late")
RENEWALS = {"renew": "/beat", "begin_turns": "/claim", "register": ""}
"""For each write that renews leases, the request that may ask for it."""


# --- the processes ----------------------------------------------------------------------------------------------------


class WatchedRemoteAgent(RemoteAgent):
    executor_type = WatchedExecutor


class WatchedRemoteNode(RemoteNode):
    agent_type = WatchedRemoteAgent

    def _fence_self(self, why: str) -> None:
        ledger.simulation.gives_up(self, why)
        super()._fence_self(why)


class RemoteProcess(WatchedProcess):
    """A process that reaches the store through a server."""

    def __init__(self, world: Any, name: str, *, roles: tuple[str, ...], **given: Any) -> None:
        door = world.parts.find(Door.name)
        hosted = ("agent",) if "agent" in roles else ()
        token = door.tokens[_kind_of(roles), roles[-1]]
        super().__init__(world, name, roles=hosted, store=URL, token=token, namespace=roles[-1], **given)
        self.roles = roles

    def _http_client(self) -> httpx2.AsyncClient:
        door: Any = self.world.parts.find(Door.name)  # type: ignore[attr-defined]
        return httpx2.AsyncClient(transport=Wire(door, self), trust_env=False)

    async def open(self, first: str | None = None) -> RemoteProcess:
        assert self._transport is not None
        await self._join_remote(self._transport)
        return self

    def _new_remote_node(self, transport: Transport) -> Node:
        node = WatchedRemoteNode(
            transport, environment=self.environment, config=self.config, on_fenced=self._on_fenced
        )
        door: Any = self.world.parts.find(Door.name)  # type: ignore[attr-defined]
        door.knows(node.id, self)
        return node


class StrangerProcess(RemoteProcess):
    """Somebody with a good token for the other namespace, who tries what is not theirs."""

    async def open(self, first: str | None = None) -> StrangerProcess:
        return self


def _kind_of(roles: tuple[str, ...]) -> str:
    return next(kind for kind in TOKENS if kind in roles)


# --- the invariants ---------------------------------------------------------------------------------------------------


def I55_an_old_turn_takes_nothing(checker: Checker, commit: Commit) -> Iterable[str]:
    """A claim takes something only if no claim of the same agent with this turn or a later one took something, or said what
    its agent has. It takes no more than the agent has room for, nothing early, and nothing behind a hold."""
    door: Door = checker.world.parts.find(Door.name)
    if commit.verb == "begin_turns":
        for turn in commit.asked["turns"]:
            if turn.steps is not None:
                door.turns[turn.node] = max(door.turns.get(turn.node, 0), turn.turn - 1)
    if commit.verb != "claim_remote":
        return
    agent, turn = commit.asked["node"], commit.asked["turn"]
    taken = [after for _, _, after in commit.steps if after is not None and after.state == "running"]
    if not taken:
        return
    if turn <= door.turns.get(agent, 0):
        yield f"turn {turn} of {agent} took {len(taken)} steps after turn {door.turns[agent]}"
    door.turns[agent] = max(door.turns.get(agent, 0), turn)
    if len(taken) > sum({tuple(claim.lanes): claim.limit for claim in commit.asked["claims"]}.values()):
        yield f"{agent} got {len(taken)} steps"
    gates = checker.gates()
    for _, before, after in commit.steps:
        run, lane = checker.runs[after.run_id], checker.lanes[after.lane]
        if before.ready_at > commit.now:
            yield f"step {after.n} of {after.run_id} was claimed {before.ready_at - commit.now:.3f} s early"
        if run.state not in ("running", "undoing"):
            yield f"step {after.n} of {after.run_id} was claimed while its run is {run.state}"
        if why := gates.holds_back(lane, run):
            yield f"step {after.n} of {after.run_id} was claimed behind {why}"


def I56_only_its_agent_lengthens_a_lease(checker: Checker, commit: Commit) -> Iterable[str]:
    """The lease of a remote node ends later only by a request that its agent sent, once a request. Nobody reclaims it
    before it ends."""
    door: Door = checker.world.parts.find(Door.name)
    for table, _, after in commit.changes:
        if table == "nodes" and after is not None and after.id in door.agents and after.retired_at is None:
            turns = {one.node: one.turn for one in commit.asked.get("turns", ())}
            turn = turns.get(after.id)
            verb = "renew" if turn == 0 else commit.verb
            yield from door.lengthened(after.id, after.lease_until, verb, turn, commit.process)
    if commit.verb == "reclaim":
        node = checker.nodes.get(commit.asked["node"])
        if node is not None and node.id in door.agents and node.retired_at is None:
            if node.lease_until >= commit.now:
                yield f"{node.id} was reclaimed {node.lease_until - commit.now:.3f} s before its lease ended"


def I57_a_lost_reply_spends_nothing(checker: Checker, commit: Commit) -> Iterable[str]:
    """When an agent says what it has, the rest of what it has goes back, and no budget is charged for that."""
    if commit.verb != "begin_turns":
        return
    door: Door = checker.world.parts.find(Door.name)
    has = {turn.node: set(turn.steps) for turn in commit.asked["turns"] if turn.steps is not None}
    changed = {(after.run_id, after.n) for _, _, after in commit.steps}
    for turn in commit.asked["turns"]:
        if turn.node in has and turn.turn > door.turns.get(turn.node, 0):  # else it is overtaken
            for step in checker.steps.values():
                if step.agent == turn.node and step.state == "running" and step[:2] not in changed:
                    if (step.run_id, step.n, step.fence) not in has[turn.node]:
                        yield f"{turn.node} does not know step {step.n} of {step.run_id}, and keeps it"
    for _, before, after in commit.steps:
        place = f"step {after.n} of {after.run_id}"
        if before.agent not in has or (before.run_id, before.n, before.fence) in has[before.agent]:
            yield f"{place} was taken from {before.agent}, which has it"
        counts = before.attempt, before.losses, before.timeouts, before.excused + 1
        if (after.attempt, after.losses, after.timeouts, after.excused) != counts or after.state != "ready":
            yield f"{place} was handed back, and is {after}"


def I58_nobody_reaches_another_namespace(checker: Checker, commit: Commit) -> Iterable[str]:
    """An agent behind a server claims in the namespace of its token, and an outcome comes from the agent that has the step:
    nobody else knows the secret of its claim."""
    door: Door = checker.world.parts.find(Door.name)
    for _, before, after in commit.steps:
        if after is None:
            continue
        if after.state == "running" and (before is None or before.state != "running"):
            agent = door.agents.get(after.agent or "")
            if agent is not None and agent.roles[-1] != namespace_of(after.run_id):
                yield f"{after.agent} of {agent.roles[-1]} has step {after.n} of {after.run_id}"
        if after.output == FORGED or (after.error and "forged" in after.error):
            yield f"a stranger ended step {after.n} of {after.run_id}"
    for _, before, after in commit.runs:
        if before is None and after is not None and after.id.endswith("forged"):
            yield f"a stranger started {after.id}"


def I59_outcomes_are_dated_by_the_store(checker: Checker, commit: Commit) -> Iterable[str]:
    """What an agent behind a server reports is not dated later than the store's time, whatever the clocks of the server and
    the agent say."""
    door: Door = checker.world.parts.find(Door.name)
    if commit.verb != "commit" or not checker.world.clocks_ok:
        return
    for _, before, after in commit.steps:
        if before is not None and before.agent in door.agents and after is not None and after.finished_at:
            if before.finished_at is None and after.finished_at > commit.now + CLOCK_S:
                late_s = after.finished_at - commit.now
                yield f"step {after.n} of {after.run_id} ends {late_s:.3f} s from now"


# --- the part ---------------------------------------------------------------------------------------------------------


class Door(Part):
    name = "door"
    share = 0.5
    checks = (
        I57_a_lost_reply_spends_nothing,  # looks at turns before this commit
        I55_an_old_turn_takes_nothing,
        I56_only_its_agent_lengthens_a_lease,
        I58_nobody_reaches_another_namespace,
        I59_outcomes_are_dated_by_the_store,
    )
    loop: Any

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.tokens: dict[tuple[str, str], str] = {}
        """The text of each token, by what it is for and its namespace."""
        self.agents: dict[str, Process] = {}
        """By id, whose node each remote node is."""
        self.turns: dict[str, int] = {}
        """By remote node, the newest turn that took something, or after which earlier ones take nothing."""
        self.exchanges: dict[Exchange, None] = {}
        """Requests that a server is answering."""
        self._until: dict[str, float] = {}
        self._cut: set[Process] = set()
        self._simulation: Simulation | None = None
        self._rates = {kind: self.dice.choice((0.0, 0.05, 0.2)) for kind in FAULTS}
        self._local_agents = self.dice.random() < 0.3
        self._made = {
            (kind, namespace): make(role, self.dice.randbytes(ID_BYTES), self.dice.randbytes(SECRET_BYTES))
            for kind, role in TOKENS.items()
            for namespace in (DEFAULT_NAMESPACE, OTHER)
        }
        self.tokens = {key: token.text for key, token in self._made.items()}

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def roles(self, drawn: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """In most seeds, all agents are behind a server."""
        if self._local_agents:
            return drawn
        without = [tuple(role for role in roles if role != "agent") for roles in drawn]
        return [roles for roles in without if roles]

    def process_type(self, roles: tuple[str, ...]) -> type[Process] | None:
        if REMOTE in roles:
            return StrangerProcess if STRANGER in roles else RemoteProcess
        return ServerProcess if SERVER in roles else None

    def spawned(self, simulation: Simulation, process: Process) -> None:
        if REMOTE not in process.roles:
            process.namespaces = Namespaces(("*",))

    def using(self, simulation: Simulation, workflow: Workflow[Any, Any], run_id: str) -> Workflow[Any, Any]:
        return workflow.using(namespace=DEFAULT_NAMESPACE)

    # --- what happens -------------------------------------------------------------------------------------------------

    def begin(self, simulation: Simulation) -> None:
        self._simulation, self.loop = simulation, simulation.loop
        dice = self.dice
        simulation.clock.begin_session()
        for (kind, namespace), token in self._made.items():
            row = (
                token.id,
                kind,
                str(TOKENS[kind]),
                namespaces((namespace,)),
                "[]",
                True,
                "sim",
                None,
                token.digest,
                "[]",
            )
            simulation.connection.execute(STATEMENTS[Verb.add_token], row)
        simulation.checker.forget()
        for _ in range(dice.choice((1, 2, 2))):
            simulation.spawn(dice.choice(((SERVER,), (SERVER,), ("scheduler", SERVER))))
        for namespace in (DEFAULT_NAMESPACE, OTHER):
            for _ in range(dice.choice((1, 1, 2))):
                simulation.spawn((REMOTE, "agent", namespace))
        clients = {}
        for run_id, plan in list(simulation.plans.items()):
            namespace = dice.choice((DEFAULT_NAMESPACE, OTHER))
            if namespace not in clients:
                clients[namespace] = simulation.spawn((REMOTE, CLIENT, namespace))
            twin = stored(namespace, f"{run_id}-d")
            simulation.plans[twin] = plan
            simulation.drive(self._start(simulation, clients[namespace], f"{run_id}-d", twin))
        if dice.random() < 0.6:
            stranger = simulation.spawn((REMOTE, STRANGER, "agent", OTHER))
            stranger.run_task(self._attack(simulation, stranger))
        for act, after_s in self._planned():
            self.later(after_s, act)

    def _planned(self) -> Iterator[tuple[Callable[[], None], float]]:
        """Yield what happens to remote processes by itself, and when."""
        for act in (
            self._kill_agent,
            self._pause_agent,
            self._cut_off_agent,
            self._cut_streams,
            self._kill_server,
        ):
            for _ in range(self.dice.choice((0, 0, 1, 2))):
                yield act, 0.3 + self.dice.random() * 4

    def _remotes(self, *words: str) -> list[Process]:
        assert self._simulation is not None
        living = self._simulation.living
        return [
            one
            for one in living
            if REMOTE in one.roles and STRANGER not in one.roles and {*words} <= {*one.roles}
        ]

    def _kill_agent(self) -> None:
        assert self._simulation is not None
        if not self._simulation.healed and (agents := self._remotes("agent")):
            self._simulation.kill(self.dice.choice(agents), vanish=self.dice.random() < 0.3)

    def _pause_agent(self) -> None:
        assert self._simulation is not None
        agents = [one for one in self._remotes("agent") if one.missed is None]
        if agents and not self._simulation.healed:
            self._simulation._pause(self.dice.choice(agents))

    def _cut_off_agent(self) -> None:
        """Nothing of an agent gets through for a while, in either direction."""
        assert self._simulation is not None
        if not self._simulation.healed and (agents := self._remotes()):
            one = self.dice.choice(agents)
            self._cut.add(one)
            self.later(self.dice.choice((0.3, 1.5, 3.0)), lambda: self._cut.discard(one))
            self._simulation.sometimes("a remote process was cut off")

    def _cut_streams(self) -> None:
        """A proxy closes streams, and both ends see it. The agents live on."""
        assert self._simulation is not None
        for exchange in list(self.exchanges):
            if exchange.path.endswith("/stream") and self.dice.random() < 0.7:
                self._simulation.sometimes("the stream of a live agent was cut")
                exchange.hang_up()
                exchange.break_off()

    def _kill_server(self) -> None:
        assert self._simulation is not None
        servers = [one for one in self._simulation.living if SERVER in one.roles]
        if servers and not self._simulation.healed:
            self._simulation.sometimes("a server was killed")
            self._simulation.kill(self.dice.choice(servers), vanish=self.dice.random() < 0.2)

    def killed(self, simulation: Simulation, process: Process) -> None:
        """What the process had open is closed, unless its host is gone, too."""
        for exchange in list(self.exchanges):
            if exchange.server is process:
                del self.exchanges[exchange]
                if not process.vanished:
                    self.later(HOP_S, exchange.break_off)
            elif exchange.client is process and not process.vanished:
                self.later(HOP_S, exchange.hang_up)

    def heal(self, simulation: Simulation) -> None:
        self._cut.clear()
        if not any(SERVER in one.roles for one in simulation.living):
            simulation.spawn((SERVER,))
        for namespace in (DEFAULT_NAMESPACE, OTHER):
            if not self._remotes("agent", namespace):
                simulation.spawn((REMOTE, "agent", namespace))

    async def _start(self, simulation: Simulation, client: Process, run_id: str, twin: str) -> None:
        """Start a run through a server, until that is answered. The first answer counts, whatever comes after it."""
        await asyncio.sleep(self.dice.random() ** 2 * 1.5)
        workflow, plan = program.program.using(id=run_id), json.dumps(simulation.plans[twin])
        while True:
            living = self._remotes(CLIENT, client.roles[-1])
            if living:
                task = living[-1].run_task(_tried(living[-1], workflow, plan))
                await asyncio.wait([task], timeout=8.0)
                if task.done() and task.result():
                    break
                task.cancel()
            elif simulation.healed:
                simulation.spawn(client.roles)
            await asyncio.sleep(0.3)
        simulation.accepted[twin] = None
        simulation.log(f"accepted {twin} through a server")
        simulation.sometimes("a run was started through a server")
        for number in range(program.signals_awaited(simulation.plans[twin])):
            simulation.drive(simulation._send(twin, f"key {number}"))

    async def _attack(self, simulation: Simulation, stranger: Process) -> None:
        """Report, beat, claim, leave and start in places that belong to others."""
        transport: Any = stranger._transport
        about = {"namespace": DEFAULT_NAMESPACE, "namespaces": [DEFAULT_NAMESPACE]}
        steps = [step.name for step in program.STEPS.values()]
        own = stranger.environment.new_id()
        self.knows(own, stranger)
        groups = [{"name": "g", "steps": steps, "places": 2}]
        body = {"id": own, "groups": groups, "about": about, "lease_s": simulation.config.lease_s}
        turn = 0
        for _ in range(self.dice.choice((4, 8, 12))):
            await asyncio.sleep(self.dice.random() * 0.8)
            act = self.dice.choice(("report", "report", "beat", "leave", "claim", "take", "start"))
            running = self._running(simulation)
            for _ in range(LOOKS if act == "report" else 0):
                if running:
                    break
                await asyncio.sleep(0.05)
                running = self._running(simulation)
            agent = self.dice.choice(sorted(self.agents))
            if self.agents[agent] is stranger and act != "take":
                continue
            at = f"/v1/agents/{path_of(agent)}"
            try:
                if act == "report" and running:
                    await transport.once("POST", "/v1/agents", body=body)
                    step = self.dice.choice(running)
                    secret = self.dice.choice(
                        ("0" * 32, secret_of(b"guess", step.run_id, step.n, step.fence))
                    )
                    report = {"verb": "succeed", "run": step.run_id, "n": step.n, "fence": step.fence}
                    report |= {"secret": secret, "output": msgspec.Raw(FORGED)}
                    for path in (f"/v1/agents/{path_of(own)}", at):
                        reply = await transport.once("POST", f"{path}/report", body={"reports": [report]})
                        self._expect(reply, act)
                elif act == "take":
                    turn += 1
                    await transport.once("POST", "/v1/agents", body=body)
                    claim = {"turn": turn, "free": {"g": 2}, "wait_s": 0.0, "has": []}
                    await transport.once("POST", f"/v1/agents/{path_of(own)}/claim", body=claim)
                    await transport.once("POST", f"/v1/agents/{path_of(own)}/leave", body={})
                    del self.agents[own]
                    own, turn = stranger.environment.new_id(), 0
                    self.knows(own, stranger)
                    body = {**body, "id": own}
                elif act == "start":
                    request = {
                        "workflow": program.program.name,
                        "id": "forged",
                        "namespace": DEFAULT_NAMESPACE,
                    }
                    self._expect(await transport.once("POST", "/v1/runs", body=request), act)
                elif act != "report":
                    claim = {"turn": 10**6, "free": {"loop": 5}, "has": []} if act == "claim" else {"has": []}
                    self._expect(await transport.once("POST", f"{at}/{act}", body=claim), act)
            except HoldfastError:
                continue

    def _running(self, simulation: Simulation) -> list[Step]:
        """Return the steps that remote agents execute."""
        return [
            one
            for one in simulation.checker.steps.values()
            if one.agent in self.agents and one.state == "running"
        ]

    def _expect(self, reply: Any, act: str) -> None:
        assert self._simulation is not None
        is_refused = reply.status in {403, 404, 410, 422, 503} or b'"refused"' in reply.body
        if not is_refused:
            self._simulation.broke(f"I58 a stranger's {act} was answered {reply.status}: {reply.body!r}")
        elif reply.status != 503:
            self._simulation.sometimes(f"a stranger was refused: {act}")

    def knows(self, node: str, process: Process) -> None:
        """Note whose node this is. A server writes what it reports."""
        assert self._simulation is not None
        self.agents[node] = process
        self._simulation.checker.remote.add(node)

    # --- the network --------------------------------------------------------------------------------------------------

    def later(self, after_s: float, call: Callable[[], object]) -> None:
        call_outside(self.loop, after_s, call)

    def server(self) -> ServerProcess | None:
        """Return the server that the next request goes to, as a balancer does."""
        assert self._simulation is not None
        found = [
            one
            for one in self._simulation.processes
            if isinstance(one, ServerProcess) and one.app is not None and (not one.dead or one.vanished)
        ]
        living = [one for one in found if not one.dead]
        if found and not self._simulation.healed and self.dice.random() < 0.1:
            return self.dice.choice(found)  # maybe one whose host is gone
        return self.dice.choice(living) if living else None

    def is_cut(self, client: Process | None) -> bool:
        return client is None or client in self._cut

    def fault(self, exchange: Exchange) -> str | None:
        assert self._simulation is not None
        if self._simulation.healed:
            return None
        for kind, rate in self._rates.items():
            if rate and self.dice.random() < rate:
                self._simulation.count(f"network: {kind}")
                return kind
        return None

    def late_s(self) -> float:
        share = self.dice.random()
        return 1.0 + 2 * share if self.dice.random() < 0.2 else share**2

    def send_again(self, exchange: Exchange, body: bytes) -> None:
        """Deliver a request a second time, maybe to another server. Nobody hears the answer."""
        server = self.server()
        if server is not None:
            again = Exchange(self, None, server, {**exchange.scope}, body)
            self.later(self.late_s(), again.begin)

    def ended(self, exchange: Exchange) -> None:
        """A server is done with a request. Beats are written together, and nobody sees which of two beats of one agent a write
        was for. So what this one still stands for, another open one may have used up."""
        self.exchanges.pop(exchange, None)
        if exchange.renewals and exchange.path.endswith("/beat"):
            for one in self.exchanges:
                if (one.path, one.server) == (exchange.path, exchange.server) and not one.renewals:
                    one.renewals = 1
                    break

    def answers(self, exchange: Exchange, message: dict[str, Any]) -> None:
        """A server sends a part of an answer."""
        assert self._simulation is not None
        if message["type"] == "http.response.start":
            if message["status"] == 500:
                self._simulation.broke(f"I58 a server answered 500 to {exchange.path}")
            if exchange.reply_lost and exchange.path.endswith("/claim"):
                self._simulation.sometimes("the answer to a claim was lost")

    # --- leases -------------------------------------------------------------------------------------------------------

    def renewed(self, simulation: Simulation, node: str) -> None:
        if node in self.agents:
            for wrong in self.lengthened(node, simulation.checker.nodes[node].lease_until, "renew"):
                simulation.broke(f"I56_only_its_agent_lengthens_a_lease: {wrong}")

    def lengthened(
        self, node: str, until: float, verb: str, turn: int | None = None, server: Process | None = None
    ) -> Iterator[str]:
        """Yield what is wrong if this lease got longer. Each request of its agent stands for one renewal, by the server that it
        came to."""
        before = self._until.get(node)
        self._until[node] = until
        if before is None or until <= before:
            return
        served = SERVED.get()  # turns are begun for many requests at once
        for exchange in self.exchanges if turn is not None else () if served is None else (served,):
            if turn is not None and exchange.server is not server:
                continue  # the same turn was sent to another server, too
            if (
                exchange.renewals
                and (exchange.turn or 0) == (turn or 0)
                and self._speaks_for(exchange, node, verb)
            ):
                exchange.renewals -= 1
                return
        yield f"{verb} lengthened the lease of {node} by {until - before:.3f} s, and its agent did not ask for it"

    def _speaks_for(self, exchange: Exchange, node: str, verb: str) -> bool:
        """True if the agent itself sent this request, and it asks for this."""
        if exchange.scope["client"][0] != self.agents[node].name or verb not in RENEWALS:
            return False
        at = f"/v1/agents/{path_of(node)}" if RENEWALS[verb] else "/v1/agents"
        return exchange.path == at + RENEWALS[verb]

    def observe(self, simulation: Simulation, commit: Commit) -> None:
        if commit.verb == "begin_turns":
            for table, _, after in commit.changes:
                if table == "nodes" and after is not None:
                    simulation.read_lease(after.id)
            if commit.steps:
                simulation.sometimes("steps were handed back after a lost reply")
        elif commit.verb == "claim_remote" and commit.steps:
            simulation.sometimes("a remote agent claimed")
        elif commit.verb == "shorten":
            simulation.sometimes("a lease was shortened")
        elif commit.verb == "commit":
            for _, before, after in commit.steps:
                if before is not None and before.agent in self.agents and before.state == "running":
                    simulation.sometimes(f"a remote report: {after and after.state}")


async def _tried(client: Process, workflow: Workflow[Any, Any], plan: str) -> bool:
    try:
        await client.start(workflow, plan)
    except HoldfastError:
        return False
    return True


# --- planted bugs -----------------------------------------------------------------------------------------------------


@mutant("a claim of an old turn takes nothing", within=60, part="door")
def old_turns_take(stack: ExitStack) -> None:
    sql(stack, "lock_turn", "AND turn < ?2", "AND ?2 IS NOT NULL")


@mutant("a claim that took something raises the turn", within=60, part="door")
def turns_are_not_raised(stack: ExitStack) -> None:
    sql(stack, "take_turn", "AND turn < ?2", "AND turn < ?2 AND 0")


@mutant("a stream renews no lease", within=30, part="door")
def streams_renew_leases(stack: ExitStack) -> None:
    real = Doorway.stream

    def stream(self: Doorway, agent: str, watched: Any) -> Any:
        @contextmanager
        def renewing() -> Iterator[Open]:
            with watched() as opened:
                pause = opened.pause

                async def renew(seconds: float) -> None:
                    await pause(seconds)
                    await self._hf.store.nodes.renew(agent, 2.0)

                opened.pause = renew
                yield opened

        return real(self, agent, renewing)

    code(stack, Doorway, "stream", stream)


@mutant("the end of a stream only shortens a lease", within=60, part="door")
def ends_of_streams_lengthen_leases(stack: ExitStack) -> None:
    sql(stack, "shorten", "min(lease_until, store_now() + ?2)", "store_now() + ?2 + 0.5")


@mutant("a report names the secret of its claim", within=30, part="door")
def secrets_are_not_checked(stack: ExitStack) -> None:
    code(stack, door_agents, "is_secret", lambda *given: True)


@mutant("the namespace comes from the token", within=60, part="door")
def every_agent_works_in_default(stack: ExitStack) -> None:
    real = door_agents._stored_offers
    code(stack, door_agents, "_stored_offers", lambda given, _: real(given, DEFAULT_NAMESPACE))


@mutant("an agent speaks with the token it came by", within=60, part="door")
def tokens_speak_for_all_agents(stack: ExitStack) -> None:
    code(stack, door_agents, "_token", lambda who: "")


@mutant("steps whose claim was not answered are ready again", within=60, part="door")
def lost_claims_stay(stack: ExitStack) -> None:
    async def give_up(*given: Any) -> tuple[int, int]:
        return 0, 0

    code(stack, remotes, "give_up", give_up)


@mutant("what an agent says that it has stays with it", within=60, part="door")
def agents_lose_what_they_have(stack: ExitStack) -> None:
    real = store_nodes.give_up
    code(stack, remotes, "give_up", lambda session, node, runs, steps: real(session, node, runs, set()))


@mutant("was: a server knows the store's time before it dates an outcome", within=150, part="door")
def servers_go_by_their_own_clock(stack: ExitStack) -> None:
    async def now(self: Any) -> float:
        return float(self._clock.now())

    code(stack, Doorway, "now", now)


@mutant("was: a claim that waits is asked anew when other places become free", within=60, part="door")
def claims_ask_for_what_was_free(stack: ExitStack) -> None:
    code(stack, AgentConnection, "_claim_or_ask_anew", AgentConnection._claim)
