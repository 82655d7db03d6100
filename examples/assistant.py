"""A model loop: a language model chooses tools until it has an answer, and every turn of it survives a crash.

    holdfast up examples/assistant.py
    holdfast start examples/assistant.py:assist --id dinner --input '{"wish": "dinner for two"}'
    holdfast asks                                                    # it wants to pay a deposit: may it?
    holdfast answer ASK --by person:owner --data true
    holdfast watch dinner

What it shows:
- each call of the model and each tool is a step: after a crash, nothing that was answered is asked or paid for again;
- tools that change something have an undo: if the loop gives up, what it reserved is cancelled, newest first;
- a tool that costs more than `free_below` asks a person first, and waits for days at no cost;
- a `Rate` keeps all runs together below what the model's provider allows, and `turns_max` ends a loop that finds no end;
- the conversation is an ordinary list in ordinary code: a replay makes it again from what was recorded.

The model is a small function here, so that the example runs anywhere: put the call of a real one into `think`.
Reservations go to work/reservations.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from holdfast import Retry, Stop, ask, here, step, workflow
from holdfast.limits import Rate

OWNER = "person:owner"


@dataclass(frozen=True)
class Message:
    by: str
    """`user`, `model`, or the name of a tool."""
    text: str


@dataclass(frozen=True)
class Turn:
    """What the model wants next: a tool, or to answer."""

    tool: str | None
    text: str
    """What the tool is to do, or the answer."""
    cost: int = 0


@step(retry=Retry(attempts=5, delay=1), timeout=60, limits=[Rate("model", 60, per=60, burst=10)])
async def think(said: list[Message]) -> Turn:
    """Ask the model. A real one gets `said` and the tools' descriptions, and `here.key` as its idempotency key."""
    found = [message for message in said if message.by == "search"]
    if not found:
        return Turn("search", said[0].text)
    if found[-1].text == "nothing":
        return Turn("search", f"{said[0].text}, further away")
    if not any(message.by == "reserve" for message in said):
        return Turn("reserve", found[-1].text, cost=200)
    return Turn(None, f"You have {said[-1].text}.")


@step
async def search(wish: str) -> str:
    """A tool that only looks."""
    return "nothing" if "yacht" in wish else f"a table for {wish}"


@step
def reserve(what: str, folder: str) -> str:
    """A tool that changes something. The file has the key of this step: reserving again writes the same."""
    path = Path(folder, f"{_named(here.key)}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(what)
    return what


@reserve.undo
def cancel(reserved: str | None, what: str, folder: str) -> None:
    Path(folder, f"{_named(here.undoes)}.txt").unlink(missing_ok=True)


@workflow
async def assist(
    wish: str, folder: str = "work/reservations", free_below: int = 100, turns_max: int = 25
) -> str:
    """Let the model work on a wish, for at most so many turns."""
    said = [Message("user", wish)]
    for _ in range(turns_max):
        turn = await think(said)
        if turn.tool is None:
            return turn.text
        said.append(Message("model", f"{turn.tool}: {turn.text}"))
        said.append(Message(turn.tool, await use(turn, folder, free_below)))
    raise Stop(f"{turns_max} turns, and no answer")  # what it has reserved is cancelled


async def use(turn: Turn, folder: str, free_below: int) -> str:
    """Use a tool, and return what it says. An error is an answer, too: the model may try something else."""
    if turn.cost >= free_below:
        allowed = await ask(
            OWNER, f"{turn.tool} {turn.text} for {turn.cost}?", bool, timeout=timedelta(days=2)
        )
        if not allowed:
            raise Stop("the owner said no")
    if turn.tool == "search":
        return await search(turn.text)
    if turn.tool == "reserve":
        return await reserve(turn.text, folder)
    return f"there is no tool {turn.tool}"


def _named(key: str | None) -> str:
    return str(key).replace("/", "_").replace(":", "_")
