"""`up`, `scheduler`, `agent` and `supervisor` go on until they are stopped."""

import asyncio
import json
import os
import signal

from holdfast.commands.up import up
from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.store import open_store
from tests.chaos.servers import own_server
from tests.commands.conftest import Cli, until
from tests.store.made import reclaim


def state(cli: Cli, run_id: str) -> str:
    return str(cli("show", run_id, "--json").json["state"])


def test_up_carries_what_is_started_and_drains(cli: Cli) -> None:
    """It takes up a run that was started elsewhere. On SIGTERM in the middle of a step, the step finishes and is
    recorded, the process ends with 0, and the next process goes on from there."""
    process = cli.start("up", "app.py")
    cli("start", "app.py:gated", "--id", "u")
    until(lambda: "gate" in cli.effects(), process)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "draining" not in process.stderr.readline():
        pass
    cli.open_gate()
    ended = cli.end(process)
    assert ended.code == 0
    assert "INFO holdfast.node: down\n" in ended.errors
    steps = {step["key"]: step for step in cli("show", "u", "--json").json["steps"]}
    assert (steps["gate"]["state"], steps["gate"]["attempts"]) == ("succeeded", 1)
    assert cli("run", "app.py:gated", "--id", "u", "--json").json["output"] == 3
    assert cli.effects() == ["first", "gate", "last"]


def test_up_waits_for_its_database(lite: Cli) -> None:
    """A database may start together with its nodes. Until it can be reached, `up` says so and tries again, and it leaves
    when it is asked to."""
    with own_server() as server:
        server.make()
        waiting = [lite.start("up", "app.py", "--store", server.url, "--json") for _ in range(2)]
        for process in waiting:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            assert (said["event"], "cannot reach the database" in said["message"]) == ("waiting", True)
        waiting[0].send_signal(signal.SIGTERM)
        assert lite.end(waiting[0]).code == 0
        server.start()
        assert waiting[1].stdout is not None
        while json.loads(waiting[1].stdout.readline())["event"] != "up":
            pass
        waiting[1].send_signal(signal.SIGTERM)
        assert lite.end(waiting[1]).code == 0


def test_three_roles_in_three_processes(cli: Cli) -> None:
    """A scheduler that executes nothing, an agent that decides nothing and a Supervisor without code do a run together.
    When the agent is killed, the Supervisor reclaims its step, and the next agent takes it."""
    cli("start", "app.py:gated", "--id", "r")
    others = [cli.start("scheduler", "app.py"), cli.start("supervisor")]
    agent = cli.start("agent", "app.py", "--steps-max", "2", "--threads-max", "1")
    until(lambda: "gate" in cli.effects(), agent)
    os.killpg(agent.pid, signal.SIGKILL)
    agent.wait()
    cli.open_gate()
    next_agent = cli.start("agent", "app.py")
    assert cli("watch", "r", "--json").json["output"] == 3
    assert cli.effects() == ["first", "gate", "gate", "last"]
    for process in (*others, next_agent):
        process.send_signal(signal.SIGINT)
        assert cli.end(process).code == 0


def test_an_agent_without_the_label_leaves_the_step(lite: Cli) -> None:
    """`why` names the label that is missing, and an agent that has it takes the step."""
    lite("start", "app.py:render", "--id", "g")
    up = lite.start("up", "app.py")
    until(lambda: "holdfast agent app.py --label gpu" in lite("why", "g").out, up)
    lite.start("agent", "app.py", "--label", "gpu")
    assert lite("watch", "g", "--json").json["output"] == "a picture"


def test_a_node_that_lost_its_lease_joins_again(cli: Cli) -> None:
    """A Supervisor reclaims from a node that is still alive, because its host was asleep. The node stops its steps,
    says so, and goes on as another node in the same process."""
    process = cli.start("agent", "app.py")
    until(lambda: cli("doctor", "--json", code=None).json.get("nodes"), process)
    (node,) = cli("doctor", "--json").json["nodes"]

    async def reclaim_it() -> None:
        store = open_store(
            cli.store.replace("sqlite:///holdfast", f"sqlite:///{cli.folder}/holdfast"), Environment()
        )
        await store.open()
        try:
            epoch = await store.leader.lead("the test", 60)
            assert epoch is not None
            assert await reclaim(store, node["id"], epoch, "the test says so", 3, 100) is not None
        finally:
            await store.close()

    asyncio.run(reclaim_it())
    until(
        lambda: (cli("doctor", "--json", code=None).json.get("nodes") or [node])[0]["id"] != node["id"],
        process,
    )
    (other,) = cli("doctor", "--json").json["nodes"]
    assert other["pid"] == node["pid"] == process.pid
    process.send_signal(signal.SIGTERM)
    ended = cli.end(process)
    assert ended.code == 0
    assert f"node {node['id']} lost its lease" in ended.errors
    assert f"joined again as node {other['id']}" in ended.errors


def test_up_prints_one_object_a_line_for_scripts(cli: Cli) -> None:
    """With --json it prints that it is up, how many runs are in which state, and that it is down. What steps print goes
    elsewhere."""
    process = cli.start("up", "app.py", "--json")
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline())]
    assert lines[0]["event"] == "up"
    cli("start", "app.py:noise", "--id", "n")
    while lines[-1].get("runs") != {"succeeded": 1}:
        lines.append(json.loads(process.stdout.readline()))
    process.send_signal(signal.SIGTERM)
    ended = cli.end(process)
    assert ended.code == 0
    assert "printed by a step" in ended.errors
    events = [json.loads(line)["event"] for line in ended.out.splitlines()]
    assert "down" in events


def test_an_idle_node_waits_for_work(lite: Cli) -> None:
    """A process with several files goes on while it has nothing to do."""
    (lite.folder / "more.py").write_text(
        "from holdfast import workflow\n\n@workflow\nasync def extra() -> str:\n    return 'extra'\n"
    )
    process = lite.start("up", "app.py", "more.py")
    lite("start", "more.py", "--id", "x")
    assert lite("watch", "x", "--json").json["output"] == "extra"
    assert process.poll() is None


def test_drain_is_as_long_as_documented() -> None:
    """The help of `up` names the limit of the configuration."""
    assert f"get {DEFAULT.drain_s:.0f} s to finish" in " ".join((up.help or "").split())
