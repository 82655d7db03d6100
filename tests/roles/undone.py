"""Workflows that are undone. What happens outside is a list of words."""

from __future__ import annotations

import asyncio

from holdfast import Retry, Stop, here, keep, saga, step, undo_with, workflow

log: list[str] = []
gates: dict[str, asyncio.Event] = {}
broken: set[int] = set()


@step(retry=1)
async def make(i: int) -> str:
    log.append(f"do {i}")
    return f"made {i}"


@make.undo(retry=Retry(attempts=2, delay=0.01))
async def unmake(done: str | None, i: int) -> None:
    if i in broken:
        raise ConnectionError("the undo is broken")
    log.append(f"undo {i} {done}")


@step(retry=1, timeout=0.1)
async def slow() -> str:
    log.append("slow began")
    await asyncio.sleep(60)
    return "?"


@slow.undo
async def unslow(done: str | None) -> None:
    log.append(f"undo slow {done} {here.undoes}")


@step(retry=1)
async def refuse() -> None:
    log.append("refused")
    raise Stop("no")


@refuse.undo
async def unrefuse(done: None) -> None:
    log.append(f"undo refused {done}")


@step(retry=1, undo_failed=True)
async def refuse_loudly() -> None:
    log.append("refused loudly")
    raise Stop("no")


@refuse_loudly.undo
async def unrefuse_loudly(done: None) -> None:
    log.append(f"undo refused loudly {done}")


class LostReplyError(ConnectionError):
    """The step had its effect, and the answer was lost."""


@step(retry=Retry(attempts=2, delay=0.01), undo_failed=(ConnectionError, KeyError))
async def lose_reply(errors: list[str]) -> None:
    kind = errors[min(here.attempt, len(errors)) - 1]
    log.append(kind)
    raise {"lost": LostReplyError, "refused": ValueError}[kind](kind)


@lose_reply.undo
async def unlose_reply(done: None, errors: list[str]) -> None:
    log.append(f"undo {'+'.join(errors)} {done}")


@workflow
async def loses_reply(errors: list[str]) -> None:
    await lose_reply(errors)


@step
async def hold() -> None:
    log.append("hold began")
    await gates["hold"].wait()


@hold.undo
async def unhold(done: None) -> None:
    log.append(f"undo hold {done}")


@step
async def by_hand_step(word: str) -> None:
    log.append(f"by hand {word}")


@step
async def quick() -> None:
    log.append("quick")


@quick.undo
async def unquick(done: None) -> None:
    log.append("undo waits")
    await gates["undo"].wait()
    log.append("undo finished")


@workflow
async def in_a_row(count: int, fails: bool) -> int:
    for i in range(count):
        await make(i)
    if fails:
        raise ValueError("no more")
    return count


@workflow
async def fan_out() -> None:
    await make(0)
    await asyncio.gather(make(1), make(2), make(3))
    raise ValueError("no more")


@workflow
async def unknown() -> None:
    await slow()


@workflow
async def refused(loudly: bool) -> None:
    await (refuse_loudly() if loudly else refuse())


@workflow
async def holds() -> None:
    await make(0)
    await hold()


@workflow
async def part() -> str:
    await make(0)
    try:
        async with saga():
            await make(1)
            await make(2)
            raise ValueError("this part is no good")
    except ValueError:
        await make(3)
        return "went on"


@workflow
async def keeps() -> None:
    await make(0)
    keep()
    await make(1)
    raise ValueError("no more")


@workflow
async def by_hand(fails: bool) -> str:
    await make(0)
    undo_with(by_hand_step, "x")
    await make(1)
    if fails:
        raise ValueError("no more")
    return "done"


@workflow
async def child() -> str:
    await make(0)
    await make(1)
    return "child done"


@workflow
async def parent() -> None:
    await child()
    raise ValueError("no more")


@workflow
async def failing_child() -> None:
    await make(0)
    raise ValueError("child is no good")


@workflow
async def parent_of_failing() -> str:
    try:
        await failing_child()
    except Exception:  # noqa: BLE001  whatever it raises, the child has undone itself
        return "the child is undone"
    return "?"


@workflow
async def slow_undo() -> None:
    await quick()
    raise ValueError("no more")
