"""The pool's pass on a real store, with a fleet whose agents the test starts, fails and ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.pool.badge import Badge
from holdfast.pool.fleet import FleetAgent, StopMode
from holdfast.pool.pool import Pool, PoolEvent
from holdfast.pool.watch import CodeWatch, file_versions
from holdfast.store import open_store
from holdfast.store.store import Store
from holdfast.supervisor.supervisor import Supervisor
from tests.store.conftest import run_sql
from tests.store.made import begin, call, number_lane

LONG_S = 3600.0


class World(Environment):
    """A monotonic clock that the test moves."""

    at = 1000.0

    def monotonic(self) -> float:
        return self.at


class Actors:
    """A fleet of agents that are only rows in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.badges: dict[str, str] = {}
        self.stopped: list[tuple[str, StopMode]] = []
        self._ended: list[FleetAgent] = []
        self.broken = False

    async def start(self, member: str, badge: str) -> None:
        if self.broken:
            raise BlockingIOError("no more processes")
        self.badges[member] = badge

    async def stop(self, member: str, mode: StopMode) -> None:
        self.stopped.append((member, mode))

    async def living(self) -> Sequence[FleetAgent]:
        ended, self._ended = self._ended, []
        return [*ended, *(FleetAgent(member) for member in self.badges)]

    async def comes_up(self, member: str) -> None:
        """Register an agent in the store with its badge, and with one step that it can do."""
        offers = {"steps": ["shop.charge"], "labels": [], "pool": json.loads(self.badges[member])}
        await self._store.nodes.register(
            f"node-{member}",
            host="h",
            pid=1,
            roles="agent",
            offers=json.dumps(offers),
            capacity=1,
            lease_s=LONG_S,
        )

    def ends(self, member: str, how: str = "by SIGKILL", *, orderly: bool = False) -> None:
        del self.badges[member]
        self._ended.append(FleetAgent(member, how, orderly=orderly))


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = open_store(store_url, Environment())
    await store.open()
    yield store
    await store.close()


def kept(
    store: Store, fleet: Actors, events: list[PoolEvent], least: int = 1, most: int = 4
) -> tuple[Pool, World]:
    world = World()
    pool = Pool(
        lambda: store,
        fleet,
        name="web",
        least=least,
        most=most,
        environment=world,
        config=Config(),
        on_event=events.append,
    )
    return pool, world


async def test_a_pool_serves_what_its_agents_can_do(store: Store) -> None:
    """It learns that from the first agent that comes up, counts what waits for such agents, and grows."""
    events: list[PoolEvent] = []
    fleet = Actors(store)
    pool, _ = kept(store, fleet, events)
    lane = await number_lane(store, "shop.charge", ())
    other = await number_lane(store, "shop.print", ("printer",))
    now = await store.now()
    await store.nodes.register(
        "s", host="h", pid=1, roles="scheduler", offers="{}", capacity=1, lease_s=LONG_S
    )
    late = [call(n, lane=lane, ready_at=now - 30) for n in (1, 2)]
    await begin(store, *late, *(call(n, lane=other, ready_at=now - 30) for n in range(3, 30)), node="s")
    loads = []
    await pool.tick()
    loads.append(pool.load)
    await fleet.comes_up("1")
    await pool.tick()
    assert loads == [None]
    assert pool.load is not None
    assert (pool.load.ready, round(pool.load.waited_s) >= 30) == (2, True)
    assert (pool.strength.wanted, set(fleet.badges)) == (2, {"1", "2"})
    badge = json.loads(fleet.badges["2"])
    assert (badge["name"], badge["member"]) == ("web", "2")
    assert [one.event for one in events] == ["start", "live", "scale", "start"]


async def test_members_of_an_earlier_start_are_not_its_own(store: Store) -> None:
    """A killed pool of the same name left agents that drain."""
    events: list[PoolEvent] = []
    fleet = Actors(store)
    fleet.badges["1"] = Badge("web", "1", "an earlier start").text()
    await fleet.comes_up("1")
    del fleet.badges["1"]
    pool, _ = kept(store, fleet, events)
    await pool.tick()
    await pool.tick()
    assert pool.strength.at_work == []


async def test_a_pool_keeps_what_it_has_while_the_store_is_away(store: Store) -> None:
    """It stops and kills nothing because of that, and replaces what ends."""
    events: list[PoolEvent] = []
    fleet = Actors(store)
    pool, world = kept(store, fleet, events)
    await pool.tick()
    await fleet.comes_up("1")
    await pool.tick()
    await store.close()
    for _ in range(5):
        world.at += 100
        await pool.tick()
    assert fleet.stopped == []
    assert (pool.load, [member.live for member in pool.strength.members]) == (None, [True])
    assert events[-1].event == "store"
    fleet.ends("1")
    await pool.tick()
    assert set(fleet.badges) == {"2"}
    await store.open()


async def test_an_agent_without_its_lease_is_killed_and_replaced(store: Store) -> None:
    """Its process is alive, but the store gave it up long ago: it does nothing any more."""
    events: list[PoolEvent] = []
    fleet = Actors(store)
    pool, world = kept(store, fleet, events)
    await pool.tick()
    await fleet.comes_up("1")
    await pool.tick()
    await store.nodes.retire("node-1")
    await pool.tick()
    assert fleet.stopped == []
    world.at += 30
    await pool.tick()
    await pool.tick()
    assert fleet.stopped == [("1", StopMode.KILL)]
    fleet.ends("1")
    await pool.tick()
    assert set(fleet.badges) == {"2"}


async def test_what_cannot_be_started_is_tried_again(store: Store) -> None:
    """The host has no processes left. The pool tries again with back-off, and then it works."""
    events: list[PoolEvent] = []
    fleet = Actors(store)
    pool, world = kept(store, fleet, events)
    fleet.broken = True
    await pool.tick()
    assert events[-1].event == "trouble"
    fleet.broken = False
    await pool.tick()
    assert fleet.badges == {}
    world.at += 1
    await pool.tick()
    assert set(fleet.badges) == {"2"}


async def test_crashes_are_reported_in_the_pulse_until_an_agent_stays(store: Store) -> None:
    """The leader reads it there, and raises an alert."""
    events: list[PoolEvent] = []
    fleet = Actors(store)
    pool, world = kept(store, fleet, events)
    while pool.trouble is None:
        await pool.tick()
        for member in list(fleet.badges):
            fleet.ends(member, "with exit code 1")
        world.at += 4
        assert world.at < 1200
    assert "agents of pool web end soon" in pool.pulse()["trouble"]
    assert len([one for one in events if one.event == "start"]) == 6
    world.at += 31
    await pool.tick()
    (member,) = fleet.badges
    await fleet.comes_up(member)
    await pool.tick()
    world.at += 31
    await pool.tick()
    assert "trouble" not in pool.pulse()
    assert events[-1].event == "steady"


async def test_the_leader_forgets_nodes_that_left(store: Store) -> None:
    """It does so after their time, with its other duties."""
    for node in ("leads", "old", "new"):
        await store.nodes.register(
            node, host="h", pid=1, roles="agent", offers="{}", capacity=1, lease_s=LONG_S
        )
    await store.nodes.retire("old")
    await store.nodes.retire("new")
    long_ago = "'2020-01-01'" if store.url.startswith("postgresql") else "1577836800.0"
    run_sql(store.url, f"UPDATE nodes SET retired_at = {long_ago} WHERE id = 'old'")
    supervisor = Supervisor(store, "leads", Environment(), Config())
    await supervisor.tick()
    assert "old" not in {node.id for node in await store.nodes.nodes()}
    assert "new" in {node.id for node in await store.nodes.nodes()}


def test_changed_code_is_seen_when_it_is_still(tmp_path: Path) -> None:
    """It is not seen while files still change, nor for files that are not the application's code; and it is seen
    once."""
    (tmp_path / "app.py").write_text("a = 1")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "part.py").write_text("b = 1")
    venv = tmp_path / "venv" / "lib"
    venv.mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    watch = CodeWatch([str(tmp_path / "app.py")])
    assert watch.look() is None
    (venv / "installed.py").touch()
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "made.py").touch()
    (tmp_path / "notes.txt").touch()
    assert [watch.look(), watch.look()] == [None, None]
    (tmp_path / "lib" / "part.py").write_text("b = 22")
    assert watch.look() is None
    (tmp_path / "lib" / "part.py").write_text("b = 333")
    assert watch.look() is None
    assert watch.look() == str(tmp_path / "lib" / "part.py")
    assert watch.look() is None
    (tmp_path / "lib" / "part.py").unlink()
    assert [watch.look(), watch.look()] == [None, str(tmp_path / "lib" / "part.py")]


def test_a_module_is_watched_where_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is watched by its package, without importing it."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "flows.py").touch()
    monkeypatch.chdir(tmp_path)
    watch = CodeWatch(["shop.flows"])
    assert file_versions([package]).keys() == {str(package / "__init__.py"), str(package / "flows.py")}
    (package / "flows.py").write_text("c = 1")
    assert [watch.look(), watch.look()] == [None, str(package / "flows.py")]
