# mypy: ignore-errors
"""Tiny workflows, one for each shape of code. The docstring of each is its graph as text."""

import asyncio
import asyncio as aio
import contextlib
import functools
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace

import holdfast
from holdfast import Signal, Stop, Update, continue_as_new, keep, patched, saga, step, undo_with, workflow


@step
async def a(x=0): ...


@step
async def b(x=0): ...


@step
async def c(x=0): ...


@step
async def book(x=0): ...


@book.undo
async def cancel(done: None, x=0): ...


@step
async def pay(x=0): ...


@pay.undo
async def refund(done: None, x=0): ...


@workflow
async def child(x: int = 0): ...


paid = Signal("paid", int)
change = Update("change", int, int)
STEPS = {"one": a, "two": b}
services = SimpleNamespace(first=a, inner=SimpleNamespace(second=b))
quick = a.using(timeout=5)
with_one = functools.partial(a, 1)


class Desk:
    charge = a

    async def serve(self, x):
        await self.charge(x)
        await b(x)


desk = Desk()
changing = SimpleNamespace(turn=a)
fickle = a


async def helper(x=0):
    await a(x)
    return await b(x)


async def quiet(x=0):
    return x + 1


async def early(x=0):
    if x:
        return None
    await a(x)
    return x


async def endless(n=0):
    await a(n)
    await endless(n - 1)


async def twice(what, x=0):
    await what(x)
    await what(x)


async def awaits(given):
    await b()
    return await given


def plain(x):
    return a(x)


def plain_keep():
    keep()


async def pages(n=0):
    while True:
        yield await a(n)


def decorated(fn):
    @functools.wraps(fn)
    async def inner(*args):
        return await fn(*args)

    return inner


@decorated
async def wrapped(x=0):
    await a(x)


@contextlib.asynccontextmanager
async def resource():
    await a()
    yield
    await b()


# --- one thing after the other ----------------------------------------------------------------------------------------


@workflow
async def empty():
    """"""
    pass


@workflow
async def series():
    """
    ├─ a
    ├─ b
    └─ return x
    """
    await a()
    x = await b()
    return x


@workflow
async def nested_arguments():
    """
    ├─ c
    ├─ b
    └─ a
    """
    await a(await b(await c()))


@workflow
async def in_return():
    """
    ├─ a
    ├─ b
    └─ return
    """
    return [await a(), await b()]


@workflow
async def in_f_string_and_dict():
    """
    ├─ a
    └─ b
    """
    repr(f"{await a()}", {"k": await b()})


@workflow
async def assigned_then_awaited():
    """
    ├─ b
    └─ a
    """
    later = a()
    await b()
    await later


@workflow
async def walrus():
    """
    ├─ a
    └─ if (x := a()) > 1
       └─ b
    """
    if (x := await a()) > 1:
        await b(x)


@workflow
async def children():
    """
    ├─ child child
    └─ child child
    """
    await child()
    await child.using(id="x")()


@workflow
async def sleeps():
    """
    ├─ sleep 90 s
    └─ sleep 2 d
    """
    await asyncio.sleep(90)
    await asyncio.sleep(timedelta(days=2).total_seconds())
    await asyncio.sleep(0)


@workflow
async def signals(other: str):
    """
    ├─ wait for signal paid
    ├─ wait for signal paid, at most 3 h
    └─ send signal paid to other
    """
    await paid.wait()
    await paid.wait(timeout=timedelta(hours=3))
    await paid.send(other, 1)


@workflow
async def stops(x: int):
    """
    ├─ a
    └─ raise Stop('no more')
    """
    await a()
    raise Stop("no more")


@workflow
async def begins_anew(x: int):
    """
    ├─ a
    └─ continue_as_new(x + 1)
    """
    await a(x)
    continue_as_new(x + 1)


@workflow
async def keeps():
    """
    ├─ book  ↶ cancel
    ├─ keep: nothing before this is undone
    └─ pay  ↶ refund
    """
    await book()
    keep()
    await pay()


@workflow
async def undo_by_hand():
    """
    ├─ a
    └─ undo with ↶ refund
    """
    await a()
    undo_with(refund, None, 1)


# --- choices ----------------------------------------------------------------------------------------------------------


@workflow
async def if_only(x: int):
    """
    └─ if x > 1
       └─ a
    """
    if x > 1:
        await a()


@workflow
async def if_elif_else(x: int):
    """
    ├─ if x > 1
    │  └─ a
    ├─ elif x > 0
    │  └─ b
    └─ else
       └─ c
    """
    if x > 1:
        await a()
    elif x > 0:
        await b()
    else:
        await c()


@workflow
async def if_with_nothing_in_it(x: int):
    """
    └─ a
    """
    if x:
        y = 1
    else:
        y = 2
    await a(y)


@workflow
async def if_returns(x: int):
    """
    ├─ if x
    │  └─ return 1
    └─ a
    """
    if x:
        return 1
    await a()


@workflow
async def elif_awaits(x: int):
    """
    ├─ if x
    │  └─ a
    └─ else
       ├─ b
       └─ if b()
          └─ c
    """
    if x:
        await a()
    elif await b():
        await c()


@workflow
async def condition_awaits():
    """
    ├─ a
    ├─ if a()
    │  └─ b
    └─ if a() and b()
       └─ c
    """
    if await a() and await b():
        await c()


@workflow
async def if_expression(x: int):
    """
    ├─ if x
    │  └─ a
    ├─ else
    │  └─ b
    └─ return
    """
    return await a() if x else await b()


@workflow
async def either_call(x: int):
    """
    ├─ if x
    │  └─ a
    └─ else
       └─ b
    """
    await (a(1) if x else b(1))


@workflow
async def either_step(x: int):
    """
    ├─ if x
    │  └─ a
    └─ else
       └─ b
    """
    chosen = a if x else b
    await chosen(1)


@workflow
async def either_in_statement(x: int):
    """
    └─ ? chosen(1): the source does not say what this is
    """
    if x:
        chosen = a
    else:
        chosen = b
    await chosen(1)


@workflow
async def match_with_default(x):
    """
    └─ match x
       ├─ case {'kind': 'card'}
       │  └─ a
       ├─ case [first, *_] if first > 1
       │  └─ b
       └─ otherwise
          └─ c
    """
    match x:
        case {"kind": "card"}:
            await a()
        case [first, *_] if first > 1:
            await b(first)
        case _:
            await c()


@workflow
async def match_without_default(x):
    """
    └─ match x
       └─ case 1 | 2
          └─ a
    """
    match x:
        case 1 | 2:
            await a()
        case 3:
            pass


# --- loops ------------------------------------------------------------------------------------------------------------


@workflow
async def for_loop(xs: list):
    """
    └─ for x in xs
       └─ a
    """
    for x in xs:
        await a(x)


@workflow
async def for_with_awaited_list():
    """
    ├─ a
    ├─ for x in a()
    │  └─ b
    └─ if the loop ended without break
       └─ c
    """
    for x in await a():
        await b(x)
    else:
        await c()


@workflow
async def while_loop():
    """
    └─ while a()
       ├─ a
       └─ b
    """
    while await a():
        await b()


@workflow
async def loop_with_break(xs: list):
    """
    └─ for x in xs
       ├─ a
       ├─ if not a(x)
       │  └─ break
       ├─ if x
       │  └─ continue
       └─ b
    """
    for x in xs:
        if not await a(x):
            break
        if x:
            continue
        await b()


@workflow
async def loop_without_steps(xs: list):
    """
    └─ a
    """
    for x in xs:
        if x:
            break
    await a()


@workflow
async def comprehension_in_series(xs: list):
    """
    ├─ for x in xs if b(x)
    │  ├─ b
    │  └─ a
    └─ return
    """
    return [await a(x) for x in xs if await b(x)]


@workflow
async def async_for_helper():
    """
    └─ async for page in pages()
       ├─ pages()
       │  └─ while True
       │     └─ a
       └─ b
    """
    async for page in pages():
        await b(page)


@workflow
async def async_for_unknown(stream):
    """
    └─ async for each in stream
       ├─ ? stream: what it iterates over cannot be followed
       └─ a
    """
    async for each in stream:
        await a(each)


# --- side by side -----------------------------------------------------------------------------------------------------


@workflow
async def gather():
    """
    └─ gather
       ├─ a
       ├─ b
       └─ helper()
          ├─ a
          └─ b
    """
    await asyncio.gather(a(), b(), helper())


@workflow
async def gather_many(xs: list):
    """
    └─ for x in xs, side by side
       └─ a
    """
    await asyncio.gather(*(a(x) for x in xs))


@workflow
async def gather_mixed(xs: list):
    """
    └─ gather
       ├─ for x in xs, side by side
       │  └─ a
       ├─ b
       └─ for x in xs if x, side by side
          └─ helper()
             ├─ a
             └─ b
    """
    await asyncio.gather(*[a(x) for x in xs], b(), *(helper(x) for x in xs if x))


@workflow
async def gather_in_gather():
    """
    └─ gather
       ├─ a
       ├─ b
       └─ c
    """
    await asyncio.gather(asyncio.gather(a(), b()), c())


@workflow
async def gather_appended(xs: list):
    """
    └─ gather
       ├─ for x in xs, side by side
       │  └─ if x > 1
       │     └─ a
       └─ b
    """
    calls = []
    for x in xs:
        if x > 1:
            calls.append(a(x))
    calls.append(b())
    await asyncio.gather(*calls)


@workflow
async def gather_unknown(calls):
    """
    └─ gather
       ├─ a
       └─ ? *calls: the source does not say what this is
    """
    await asyncio.gather(a(), *calls)


@workflow
async def gather_mapped(xs: list):
    """
    └─ for each of xs, side by side
       └─ a
    """
    await asyncio.gather(*map(a, xs))


@workflow
async def gather_begun_before():
    """
    ├─ begin gather
    │  └─ gather
    │     ├─ a
    │     └─ b
    ├─ c
    └─ await both
    """
    both = asyncio.gather(a(), b())
    await c()
    await both


@workflow
async def task_group():
    """
    └─ TaskGroup
       ├─ a
       └─ helper()
          ├─ a
          └─ b
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(a())
        group.create_task(helper(), name="second")


@workflow
async def task_group_of_many(xs: list):
    """
    ├─ for x in xs, side by side
    │  └─ a
    └─ return [task.result() for task in tasks]
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(a(x)) for x in xs]
    return [task.result() for task in tasks]


@workflow
async def task_group_with_steps_between():
    """
    └─ TaskGroup
       ├─ begin a
       │  └─ a
       ├─ b
       └─ begin c
          └─ c
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(a())
        x = await b()
        group.create_task(c(x))


@workflow
async def task_joined():
    """
    ├─ begin a
    │  └─ a
    ├─ b
    └─ await task
    """
    task = asyncio.create_task(a())
    await b()
    await task


@workflow
async def task_left_open():
    """
    ├─ begin helper, and nothing waits for it
    │  └─ helper()
    │     ├─ a
    │     └─ b
    └─ b
    """
    asyncio.create_task(helper())
    await b()


@workflow
async def tasks_gathered(xs: list):
    """
    └─ for x in xs, side by side
       └─ a
    """
    tasks = [asyncio.create_task(a(x)) for x in xs]
    await asyncio.gather(*tasks)


@workflow
async def tasks_awaited_in_turn(xs: list):
    """
    ├─ for x in xs
    │  └─ begin a
    │     └─ a
    ├─ b
    └─ for task in tasks.values()
       └─ await task
    """
    tasks = {x: asyncio.create_task(a(x)) for x in xs}
    await b()
    for task in tasks.values():
        await task


@workflow
async def as_completed():
    """
    ├─ as_completed
    │  ├─ a
    │  └─ b
    └─ for done in asyncio.as_completed([a(), b()])
       └─ c
    """
    for done in asyncio.as_completed([a(), b()]):
        await c(await done)


@workflow
async def wait_first():
    """
    └─ wait
       ├─ a
       └─ b
    """
    tasks = [asyncio.create_task(a()), asyncio.create_task(b())]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


@workflow
async def mapped(xs: list):
    """
    ├─ map over xs, at most 5 at a time, tolerates 0.1
    │  └─ book  ↶ cancel
    └─ gather
       ├─ map over xs, side by side
       │  └─ a
       └─ b
    """
    await book.map(xs, limit=5, tolerate=0.1)
    await asyncio.gather(a.map(xs), b())


# --- scopes -----------------------------------------------------------------------------------------------------------


@workflow
async def with_timeout():
    """
    ├─ within 60 s
    │  └─ a
    ├─ within 5 min
    │  └─ helper()
    │     ├─ a
    │     └─ b
    └─ within 5 s
       └─ b
    """
    async with asyncio.timeout(60), asyncio.timeout(None):
        await a()
    await asyncio.wait_for(helper(), timedelta(minutes=5).total_seconds())
    await asyncio.wait_for(b(), 5)


@workflow
async def shielded():
    """
    └─ a
    """
    await asyncio.shield(a())


@workflow
async def try_except(x: int):
    """
    ├─ try
    │  └─ a
    ├─ except (ValueError, TypeError)
    │  ├─ b
    │  └─ raise
    ├─ except Exception
    ├─ else
    │  └─ c
    └─ finally
       └─ child child
    """
    try:
        await a()
    except (ValueError, TypeError) as error:
        await b(str(error))
        raise
    except Exception:
        pass
    else:
        await c()
    finally:
        await child()


@workflow
async def suppressed():
    """
    ├─ try
    │  └─ a
    └─ except ValueError
    """
    with suppress(ValueError):
        await a()


@workflow
async def saga_in_try():
    """
    ├─ try
    │  └─ saga ↶ undone as a whole if it fails
    │     ├─ book  ↶ cancel
    │     └─ gather
    │        ├─ pay  ↶ refund
    │        └─ a
    └─ except Stop
       └─ b
    """
    try:
        async with saga():
            await book()
            await asyncio.gather(pay(), a())
    except Stop:
        await b()


@workflow
async def saga_with_another_name():
    """
    └─ saga ↶ undone as a whole if it fails
       └─ pay  ↶ refund
    """
    async with holdfast.saga():
        await pay()


@workflow
async def own_objects():
    """
    ├─ a
    └─ await queue.get()
    """
    queue, lock = asyncio.Queue(), asyncio.Lock()
    async with lock:
        await a()
    await queue.get()


@workflow
async def unknown_context(something):
    """
    └─ ? async with something.open(): what it does when it is entered and left cann…
       └─ a
    """
    async with something.open() as x:
        await a(x)


@workflow
async def context_with_steps():
    """
    ├─ ? resource(): another decorator is around it, and what that does is not known
    └─ ? async with resource(): what it does when it is entered and left cannot be …
       └─ c
    """
    async with resource():
        await c()


# --- where names lead -------------------------------------------------------------------------------------------------


@workflow
async def aliases():
    """
    ├─ a
    ├─ b
    ├─ a
    ├─ a
    └─ sleep 1 s
    """
    mine, (yours, _) = a, (b, c)
    await mine()
    await yours()
    await quick()
    await with_one()
    await aio.sleep(1)


@workflow
async def attributes():
    """
    ├─ a
    ├─ b
    ├─ a
    ├─ a
    └─ serve()
       ├─ a
       └─ b
    """
    await services.first()
    await services.inner.second()
    await STEPS["one"]()
    await Desk.charge()
    await desk.serve(1)


@workflow
async def using_settings(x: str):
    """
    ├─ a
    └─ b
    """
    await a.using(timeout=3)(1)
    await b.using(key=f"b-{x}")(2)


@workflow
async def imported_inside():
    """
    └─ b
    """
    from tests.unit.graph_shapes import b as renamed

    await renamed()


@workflow
async def helpers(x: int):
    """
    ├─ helper()
    │  ├─ a
    │  └─ b
    └─ early()
       ├─ if x
       │  └─ return None
       └─ a
    """
    await helper(x)
    await quiet(x)
    await early(x)


@workflow
async def recursive():
    """
    └─ endless()
       ├─ a
       └─ ? endless(): it calls itself
    """
    await endless(3)


@workflow
async def step_as_argument():
    """
    ├─ twice()
    │  ├─ a
    │  └─ a
    └─ awaits()
       ├─ b
       └─ c
    """
    await twice(a)
    await awaits(c())


@workflow
async def plain_functions():
    """
    ├─ a
    └─ plain_keep()
       └─ keep: nothing before this is undone
    """
    await plain(1)
    plain_keep()
    repr(len("x"))


@workflow
async def nested_function(xs: list):
    """
    ├─ for x in xs, side by side
    │  └─ one()
    │     ├─ a
    │     └─ b
    └─ c
    """

    async def one(x):
        await a(x)
        await b(x)

    await asyncio.gather(*(one(x) for x in xs))
    await (lambda x: c(x))(1)


@workflow
async def decorated_helper():
    """
    └─ ? wrapped(): another decorator is around it, and what that does is not known
    """
    await wrapped()


# --- what the source does not say ------------------------------------------------------------------------------------


@workflow
async def parameter_called(what):
    """
    ├─ ? what(1): the source does not say what this is
    └─ a
    """
    await what(1)
    await a()


@workflow
async def looked_up(x: str):
    """
    └─ ? STEPS[x](): the source does not say what this is
    """
    await STEPS[x]()


@workflow
async def one_of_several():
    """
    └─ for each in (a, b)
       └─ ? each(1): the source does not say what this is
    """
    for each in (a, b):
        await each(1)


@workflow
async def passed_on(registry):
    """
    ├─ ? a(…): the source does not say where this is awaited
    │  └─ a
    └─ b
    """
    registry.add(a(1))
    await b()


@workflow
async def never_called(xs: list):
    """
    ├─ ? later(): the source does not say when this is called
    │  └─ a
    ├─ ? lambda(): the source does not say when this is called
    │  └─ b
    └─ c
    """

    async def later():
        await a()

    xs.append(lambda: b())
    await c()


@workflow
async def foreign_code():
    """
    └─ ? asyncio.start_server(repr): it is code of asyncio.streams
    """
    await asyncio.start_server(repr)


@workflow
async def shadowed(a):
    """
    ├─ ? a(1): the source does not say what this is
    └─ c
    """
    await a(1)
    b = 3
    await c(b)


@workflow
async def after_return():
    """
    ├─ return 1
    └─ a
    """
    return 1
    await a()


# --- what the language has beside steps ------------------------------------------------------------------------------


@workflow
async def starts():
    """
    ├─ start child, which outlives this run
    └─ a
    """
    await child.start()
    await a()


@workflow
async def marked():
    """
    ├─ if patched('new')
    │  └─ a
    └─ else
       └─ b
    """
    if patched("new"):
        await a()
    else:
        await b()


@workflow
async def served():
    """
    ├─ serve update change
    │  ├─ calls of change, one at a time
    │  │  └─ on_change()
    │  │     ├─ a
    │  │     └─ b
    │  └─ wait for signal paid
    └─ c
    """

    async def on_change(x):
        await a(x)
        return await b(x)

    async with change.serve(on_change):
        await paid.wait()
    await c()


@workflow
async def served_by_a_step():
    """
    └─ serve update change
       ├─ calls of change, at most 3 at a time
       │  └─ b
       └─ c
    """
    async with change.serve(b, limit=3):
        await c()


@workflow
async def served_by_plain_code(x: int):
    """
    └─ serve update change
       └─ c
    """
    async with change.serve(lambda new: x + new):
        await c()


@workflow
async def served_by_something(given):
    """
    └─ serve update change
       ├─ calls of change, one at a time
       │  └─ ? given(): the source does not say what this is
       └─ c
    """
    async with change.serve(given):
        await c()


@workflow
async def map_into(xs: list[int]):
    """
    └─ map over xs, at most 5 at a time
       ├─ a
       └─ b
    """
    await a.map(xs, limit=5, into=b)


@workflow
async def map_of_children(xs: list[int]):
    """
    └─ map over xs, side by side
       └─ child child
    """
    await child.map(xs)


@workflow
async def called_under_a_condition(x: int):
    """
    ├─ if x
    │  └─ a
    └─ if x > 1
       └─ b
    """
    (c1 := a()) if x else None
    x > 1 and (c2 := b())
    await c1
    await c2


@workflow
async def used_before_it_is_bound(x: int):
    """
    └─ ? a(): the source does not say what this is
    """
    await a()
    a = x


@workflow
async def bound_again_in_a_loop(xs: list[int]):
    """
    ├─ for x in xs
    │  └─ ? call(x): the source does not say what this is
    └─ ? call(): the source does not say what this is
    """
    call = a
    for x in xs:
        await call(x)
        call = b
    await call()


@workflow
async def served_with_a_check():
    """
    └─ serve update change
       ├─ calls of change, one at a time
       │  ├─ check()
       │  │  └─ if x < 0
       │  │     └─ raise Stop('no')
       │  └─ b
       └─ c
    """

    def check(x):
        if x < 0:
            raise Stop("no")

    async with change.serve(b, check=check):
        await c()


@workflow
async def task_gathered_after_something_else():
    """
    ├─ begin a
    │  └─ a
    ├─ b
    └─ gather
       ├─ await t
       └─ c
    """
    t = asyncio.create_task(a())
    await b()
    await asyncio.gather(t, c())


# --- what is bound anew, so that nobody can say what it is ------------------------------------------------------------


@workflow
async def bound_by_a_function_inside(x: int):
    """
    └─ ? call(): the source does not say what this is
    """
    call = a

    def change():
        nonlocal call
        call = b

    change()
    await call()


@workflow
async def bound_for_the_module(x: int):
    """
    └─ ? fickle(): the source does not say what this is
    """
    global fickle
    await fickle()
    fickle = b


@workflow
async def bound_after_a_task_has_begun(x: int):
    """
    ├─ begin later
    │  └─ later()
    │     └─ ? call(): the source does not say what this is
    └─ await t
    """
    call = a

    async def later():
        await call()

    t = asyncio.create_task(later())
    call = b
    await t


@workflow
async def bound_in_an_expression(x: int):
    """
    ├─ ? first(): the source does not say what this is
    ├─ ? second(): the source does not say what this is
    └─ ? third(): the source does not say what this is
    """
    first = second = third = a
    [(first := b) for _ in range(2)]
    x and (second := b)
    (third := b) if x else (third := c)
    await first()
    await second()
    await third()


@workflow
async def bound_in_a_later_condition(x: int):
    """
    └─ ? call(): the source does not say what this is
    """
    call = a
    if x > 1:
        pass
    elif call := b:
        pass
    await call()


@workflow
async def bound_where_an_exception_may_come(x: int):
    """
    ├─ try
    │  └─ c
    ├─ except ValueError
    │  └─ ? call(): the source does not say what this is
    ├─ finally
    │  └─ ? call(): the source does not say what this is
    ├─ try
    │  └─ c
    ├─ except ValueError
    └─ ? call(): the source does not say what this is
    """
    call = a
    try:
        call = b
        await c()
        call = a
    except ValueError:
        await call()
    finally:
        await call()
    with contextlib.suppress(ValueError):
        await c()
        call = b
    await call()


@workflow
async def left_in_the_middle_of_a_loop(x: int):
    """
    ├─ while True
    │  ├─ c
    │  └─ if c()
    │     └─ break
    └─ ? call(): the source does not say what this is
    """
    call = a
    while True:
        call = b
        if await c():
            break
        call = a
    await call()


@workflow
async def list_changed(x: int):
    """
    ├─ ? calls[0](): the source does not say what this is
    ├─ ? calls[0](): the source does not say what this is
    ├─ ? calls[0](): the source does not say what this is
    ├─ plain()
    │  └─ ? a(…): the source does not say where this is awaited
    │     └─ a
    ├─ ? calls[0](): the source does not say what this is
    ├─ ? calls[0](): the source does not say what this is
    └─ ? numbered[0](): the source does not say what this is
    """
    calls = [a, b]
    calls.reverse()
    await calls[0]()
    calls = [a, b]
    calls[0] = c
    await calls[0]()
    calls = [a, b]
    del calls[0]
    await calls[0]()
    calls = [a, b]
    plain(calls)
    await calls[0]()
    calls = list(reversed([a, b]))
    await calls[0]()
    numbered = {1: a, 0: b}
    await numbered[0]()


@workflow
async def list_emptied(x: int):
    """
    ├─ ? a(…): the source does not say where this is awaited
    │  └─ a
    ├─ ? b(…): the source does not say where this is awaited
    │  └─ b
    └─ gather
       └─ ? calls.clear: the source does not say what is left in it
    """
    calls = [a(), b()]
    calls.clear()
    await asyncio.gather(*calls)


@workflow
async def copy_changed(x: int):
    """
    ├─ ? b(…): the source does not say where this is awaited
    │  └─ b
    └─ gather
       └─ a
    """
    calls = [a()]
    others = list(calls)
    others.append(b())
    await asyncio.gather(*calls)


@workflow
async def attribute_set(x: int):
    """
    └─ ? changing.turn(): the source does not say what this is
    """
    changing.turn = b
    await changing.turn()


@workflow
async def compared_in_a_row(x: int):
    """
    ├─ a
    ├─ if 0 < a()
    │  └─ b
    └─ return
    """
    return 0 < await a() < await b()


@workflow
async def guard_awaits(x: int):
    """
    ├─ if x is like int(n)
    │  └─ if n > 3
    │     └─ a
    └─ match x
       ├─ case int(n) if n > 3 and a(n)
       │  └─ b
       └─ otherwise
          └─ c
    """
    match x:
        case int(n) if n > 3 and await a(n):
            await b()
        case _:
            await c()


@workflow
async def timeout_at_a_time(when: float):
    """
    └─ with a timeout
       └─ a
    """
    async with asyncio.timeout_at(when):
        await a()
