"""What the code of nodes declares about workflows, and which nodes publish which names."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from holdfast.errors import NameTaken
from holdfast.model import Declaration, RunState
from holdfast.store.operations import Hop, Start
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import LONG_S, A, D, closing, new_run, say_gone, start

E = "node-e"
ORDER = Declaration("default", "shop.order", "1", "shop.order@1", "shop", "d1", "{}", "{}", "{}")


def offers(origin: str, digest: str, *steps: str, workflows: tuple[str, ...] = ()) -> str:
    """Return the offers of a node that publishes these names."""
    return json.dumps(
        {
            "workflows": list(workflows),
            "steps": list(steps),
            "sources": [[origin, digest, f"/srv/{origin}/app.py"]],
            "workflow_sources": [0] * len(workflows),
            "step_sources": [0] * len(steps),
            "labels": ["gpu"],
        }
    )


async def enter(store: Store, node: str, offered: str = "{}", *declared: Declaration, **more: Any) -> None:
    settings: dict[str, Any] = {"host": "here", "pid": 7, "roles": "all", "capacity": 5, "lease_s": LONG_S}
    await store.nodes.register(node, offers=offered, declared=declared, **(settings | more))


async def ids(store: Store) -> set[str]:
    return {node.id for node in await store.nodes.nodes()}


async def test_a_node_declares_its_workflows_with_its_row(store: Store) -> None:
    """The declarations can be read, all of them or that of an open run."""
    await enter(store, D, "{}", ORDER)
    (found,) = await store.workflows.workflows(10)
    assert found.first_at == found.last_at == pytest.approx(await store.now(), abs=5)
    assert [getattr(found, name) for name in Declaration.__struct_fields__[:9]] == [
        getattr(ORDER, name) for name in Declaration.__struct_fields__[:9]
    ]
    run = new_run(workflow="shop.order", version="1")
    other = new_run(workflow="shop.order", version="2")
    await store.batches.commit(A, [Start(run)])
    await store.batches.commit(A, [Start(other)])
    assert await store.workflows.declared(run.id) == found
    assert await store.workflows.declared(other.id) is None
    assert await store.workflows.declared("no-such-run") is None


async def test_a_graph_belongs_to_the_code_it_was_read_from(store: Store) -> None:
    """It is found by the name of its workflow until other code is declared, and a graph of older code is not written."""
    await enter(store, D, "{}", ORDER)
    assert await store.workflows.graphless(10) == [("default", "shop.order", "1", "d1")]
    assert await store.workflows.drawn("shop.order", "1") is None
    assert await store.workflows.set_graphs([("default", "shop.order", "1", "d1", "{}")]) == 1
    assert (await store.workflows.drawn("shop.order", "1"), await store.workflows.graphless(10)) == ("{}", [])
    await enter(store, D, "{}", msgspec.structs.replace(ORDER, digest="d2"))
    assert await store.workflows.drawn("shop.order", "1") is None
    assert await store.workflows.set_graphs([("default", "shop.order", "1", "d1", "{}")]) == 0
    assert await store.workflows.graphless(10) == [("default", "shop.order", "1", "d2")]
    everywhere = msgspec.structs.replace(ORDER, namespace="*", name="shop.all")
    await enter(store, E, "{}", everywhere)
    assert await store.workflows.set_graphs([("*", "shop.all", "1", "d1", '{"all": true}')]) == 1
    assert await store.workflows.drawn("acme//shop.all", "1") == '{"all": true}'
    assert await store.workflows.drawn("acme//shop.order", "1") is None


async def test_nothing_is_declared_of_a_run_that_has_ended(store: Store) -> None:
    """Nobody can send it anything any more."""
    await enter(store, D, "{}", ORDER)
    run = new_run(workflow="shop.order", version="1")
    hop = Hop(run.id, 1, begin=run, begun_at=await store.now(), close=closing(RunState.SUCCEEDED))
    await store.batches.commit(A, [hop])
    assert await store.workflows.declared(run.id) is None


async def test_the_same_again_changes_nothing(store: Store, tamper: Tamper) -> None:
    """Processes that come and go write nothing, except that once an hour the time is noted."""
    await enter(store, D, "{}", ORDER)
    (first,) = await store.workflows.workflows(10)
    await enter(store, E, "{}", ORDER)
    assert await store.workflows.workflows(10) == [first]
    hour = "first_at - 7200" if store.url.startswith("sqlite") else "first_at - interval '2 hours'"
    tamper(f"UPDATE workflows SET first_at = {hour}, last_at = {hour}")
    await enter(store, E, "{}", ORDER)
    (noted,) = await store.workflows.workflows(10)
    assert noted.last_at - noted.first_at == pytest.approx(7200, abs=60)


async def test_changed_code_is_declared_anew(store: Store) -> None:
    """That is so even while nodes with the old code are up. The node that started last counts."""
    await enter(store, D, "{}", ORDER)
    (first,) = await store.workflows.workflows(10)
    changed = Declaration(
        "default", "shop.order", "1", "shop.order@1", "shop", "d2", "{}", '{"type":"null"}', "{}"
    )
    await enter(store, E, "{}", changed)
    (found,) = await store.workflows.workflows(10)
    assert (found.digest, found.result, found.first_at) == ("d2", '{"type":"null"}', first.first_at)
    assert found.last_at > first.last_at


class TestTakenNames:
    """If two applications have the same name, the second one is refused."""

    async def test_another_application_is_refused_and_nothing_is_entered(
        self, store: Store, other: Store
    ) -> None:
        await enter(other, D, offers("billing", "d1", "app.charge", "app.ship"))
        with pytest.raises(NameTaken) as refused:
            await enter(store, E, offers("mailing", "d2", "app.charge", "app.ship", "app.mail"), ORDER)
        assert await ids(store) >= {D}
        assert E not in await ids(store)
        assert await store.workflows.workflows(10) == []
        for part in (
            "step app.charge",
            "1 more",
            "billing (/srv/billing/app.py)",
            "here pid 7",
            "mailing",
            "--app",
            "name=…",
        ):
            assert part in str(refused.value), part

    async def test_a_workflow_counts_as_a_step_does(self, store: Store, other: Store) -> None:
        await enter(other, D, offers("billing", "d1", workflows=("app.order@1",)))
        with pytest.raises(NameTaken, match=r"workflow app\.order@1 belongs to another application"):
            await enter(store, E, offers("mailing", "d2", workflows=("app.order@1",)))
        await enter(store, E, offers("mailing", "d2", workflows=("app.order@2",)))

    async def test_a_deploy_of_one_application_is_let_in(self, store: Store, other: Store) -> None:
        """The origin is the same, and the code is another."""
        await enter(other, D, offers("billing", "d1", "app.charge"))
        await enter(store, E, offers("billing", "d2", "app.charge"))
        assert await ids(store) >= {D, E}

    async def test_the_same_code_from_elsewhere_is_let_in(self, store: Store, other: Store) -> None:
        await enter(other, D, offers("/home/ada/app.py", "d1", "app.charge"))
        await enter(store, E, offers("/home/bob/app.py", "d1", "app.charge"))
        assert await ids(store) >= {D, E}

    async def test_other_names_do_not_matter(self, store: Store, other: Store) -> None:
        await enter(other, D, offers("billing", "d1", "billing.app.charge"))
        await enter(store, E, offers("mailing", "d2", "mailing.app.charge"))
        assert await ids(store) >= {D, E}

    async def test_what_a_node_only_knows_it_does_not_publish(self, store: Store, other: Store) -> None:
        """The node is a supervisor that has loaded code."""
        knows = json.dumps({"steps": ["app.charge"], "workflows": ["app.order@1"]})
        await enter(other, D, knows)
        await enter(store, E, offers("mailing", "d2", "app.charge"))
        assert await ids(store) >= {D, E}

    async def test_a_node_may_register_again_with_other_code(self, store: Store) -> None:
        """Its own names do not count as taken."""
        await enter(store, D, offers("billing", "d1", "app.charge"))
        await enter(store, D, offers("a session", "d2", "app.charge"))
        (found,) = [node for node in await store.nodes.nodes() if node.id == D]
        assert "a session" in found.offers

    async def test_the_names_of_a_node_that_left_are_free(self, store: Store) -> None:
        await enter(store, D, offers("billing", "d1", "app.charge"))
        await store.nodes.retire(D)
        await enter(store, E, offers("mailing", "d2", "app.charge"))

    async def test_the_names_of_a_node_whose_lease_ran_out_are_free(
        self, store: Store, tamper: Tamper
    ) -> None:
        await enter(store, D, offers("billing", "d1", "app.charge"))
        past = "1.0" if store.url.startswith("sqlite") else "to_timestamp(1)"
        tamper(f"UPDATE nodes SET lease_until = {past} WHERE id = '{D}'")
        await enter(store, E, offers("mailing", "d2", "app.charge"))

    async def test_the_names_of_a_node_whose_process_died_are_free(self, store: Store, other: Store) -> None:
        """That is so at once, although its lease has not run out yet."""
        await enter(other, D, offers("billing", "d1", "app.charge"))
        with pytest.raises(NameTaken):
            await enter(store, E, offers("mailing", "d2", "app.charge"))
        await other.close()  # on SQLite, this releases the lock, as the end of the process would
        await say_gone(store.url, D)
        await enter(store, E, offers("mailing", "d2", "app.charge"))

    async def test_of_two_that_register_at_the_same_moment_one_is_refused(
        self, store: Store, other: Store
    ) -> None:
        for turn in range(10):
            name = f"app.charge{turn}"
            came = await asyncio.gather(
                enter(store, f"one-{turn}", offers("billing", "d1", name)),
                enter(other, f"two-{turn}", offers("mailing", "d2", name)),
                return_exceptions=True,
            )
            assert sorted(type(one).__name__ for one in came) == ["NameTaken", "NoneType"]

    async def test_nodes_with_other_code_can_be_listed(self, store: Store) -> None:
        """There is one node for each code, and none that publishes nothing."""
        published = offers("billing", "d1", "app.charge")
        await enter(store, D, published)
        (rival,) = await store.workflows.rivals("other")
        assert (rival.host, rival.pid, json.loads(rival.offers)) == ("here", 7, json.loads(published))
        assert await store.workflows.rivals("other", D) == []


class TestForgetting:
    """The leader removes declarations that no node has made for a long time."""

    async def test_what_nobody_declared_for_a_long_time_is_removed(self, store: Store) -> None:
        await enter(store, D, "{}", ORDER)
        epoch = await store.leader.lead(A, LONG_S)
        assert epoch is not None
        now = await store.now()
        assert await store.retention.forget_workflows(epoch, now - 60, 10) == 0
        assert await store.retention.forget_workflows(epoch + 1, now + 60, 10) == 0
        assert await store.retention.forget_workflows(epoch, now + 60, 10) == 1
        assert await store.workflows.workflows(10) == []

    async def test_what_a_live_node_has_stays(self, store: Store) -> None:
        """It does not matter how long ago the node started."""
        await enter(store, D, json.dumps({"workflows": ["shop.order@1"]}), ORDER)
        epoch = await store.leader.lead(A, LONG_S)
        assert epoch is not None
        assert await store.retention.forget_workflows(epoch, await store.now() + 60, 10) == 0
        await store.nodes.retire(D)
        assert await store.retention.forget_workflows(epoch, await store.now() + 60, 10) == 1

    async def test_a_run_may_outlive_its_declaration(self, store: Store) -> None:
        """Then nobody knows which signals it takes, as in a store without declarations."""
        run_id = await start(store)
        assert await store.workflows.declared(run_id) is None
