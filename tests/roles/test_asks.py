"""Questions to people, with real processes: notices, and answers that survive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from holdfast import Holdfast, ask, workflow
from holdfast.errors import WrongState
from holdfast.model import AskState
from tests.roles.conftest import FAST
from tests.roles.crash import kill


@workflow
async def asks_anna() -> str:
    return await ask(["person:anna", "team:finance"], "Ship the <large> order?", str, remind=0.3)


@workflow
async def asks_three() -> list[str]:
    return [one.by for one in await ask("team:finance", "Ship it?", bool, of=3)]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  a file and another process give no event
            await asyncio.sleep(0.02)


def notices(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def test_people_get_the_question_a_link_and_reminders(store_url: str, tmp_path: Path) -> None:
    """By their own channels. The link stands in no alert and in no journal, and a team gets none."""
    anna, team = tmp_path / "anna.jsonl", tmp_path / "team.jsonl"
    channel = {"type": "command", "kinds": ["run stuck"]}
    alerts = {
        "public_url": "https://holdfast.example/",
        "channels": {
            "anna": {**channel, "argv": ["tee", "-a", str(anna)]},
            "team": {**channel, "argv": ["tee", "-a", str(team)]},
        },
        "people": {"anna": {"channels": ["anna"]}},
        "teams": {"finance": {"channels": ["team"]}},
    }
    async with Holdfast(store_url, config=FAST, alerts=alerts) as hf:
        run = await hf.start(asks_anna)
        await until(lambda: len(notices(anna)) >= 2 and notices(team))
        message = notices(anna)[0]["message"]
        assert message.startswith("Ship the <large> order? https://holdfast.example/a/")
        assert "/a/" not in notices(team)[0]["message"]
        stored = [alert.message for alert in await hf.store.alerts.alerts(50)]
        stored += [entry.note for entry in await hf.store.reads.journal(run.id)]
        assert stored
        assert not [text for text in stored if "/a/" in text or "Ship" in text]
        (asked,) = await hf.asks.list()
        await hf.asks.answer(asked.id, "yes", by="person:anna")
        assert await run.result(60) == "yes"


async def test_answers_survive_a_kill_and_the_quorum_is_exact(store_url: str) -> None:
    """Ten people answer while the process that runs the workflow dies again and again. Three are taken, and the run gets
    these three."""
    async with Holdfast(store_url, roles=(), config=FAST) as caller:
        run = await caller.start(asks_three.using(id="quorum"))
        node = await Holdfast(store_url, config=FAST).open()
        async with asyncio.timeout(60):
            while not (found := await caller.asks.list()):  # noqa: ASYNC110  another process asks
                await asyncio.sleep(0.02)
        taken: list[str] = []

        async def answer(number: int) -> None:
            try:
                await caller.asks.answer(found[0].id, True, by=f"person:p{number}")
            except WrongState:
                return
            taken.append(f"person:p{number}")

        await asyncio.gather(answer(0), answer(1))
        await kill(node)
        await asyncio.gather(*(answer(number) for number in range(2, 10)))
        assert len(taken) == 3
        assert (await caller.asks.get(found[0].id)).state is AskState.ANSWERED
        async with Holdfast(store_url, config=FAST):
            assert sorted(await run.result(60)) == sorted(taken)
        assert [row for row in await caller.store.reads.doctor() if row[2]] == []
