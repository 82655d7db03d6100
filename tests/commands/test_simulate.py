"""`holdfast simulate` says what would run twice, without executing it once."""

import re
from pathlib import Path

import pytest

from tests.commands.conftest import Cli

EXAMPLES = Path(__file__).parents[2] / "examples"
APP = """
from dataclasses import dataclass

from holdfast import Signal, here, step, workflow

go = Signal("go", int)


@dataclass
class Charge:
    id: str
    cents: int


@step
async def charge(card: str) -> Charge:
    open("effects", "a").write("charged\\n")
    return Charge("c1", 5)


@step
async def ship(charge: Charge) -> str:
    print("shipped under", here.key)
    return charge.id


@workflow
async def order(card: str) -> str:
    if (paid := await charge(card)).cents > 1000:
        await go.wait()
    return await ship(paid)
"""


ALONE = ["--interpreters", "0"]
"""Do without other interpreters: starting them takes longer than all the rest, and one test is about them."""


@pytest.fixture
def shop(lite: Cli) -> Cli:
    (lite.folder / "shop.py").write_text(APP)
    return lite


def test_the_clean_example_is_only_counted(lite: Cli) -> None:
    """It prints the number of boundaries that were tried, and nothing else."""
    ended = lite("simulate", str(EXAMPLES / "order.py:order"))
    line = re.fullmatch(r"✓ (\d+) boundaries of order\.order tried\n", ended.out)
    assert line
    assert int(line[1]) > 40
    assert ended.errors == ""


def test_the_careless_example_is_named(lite: Cli) -> None:
    """It names the step that runs twice, the boundary where that happens, and a command that does show it again."""
    target = str(EXAMPLES / "order.py:careless_order")
    ended = lite("simulate", target, code=1)
    first, when, *_ = ended.out.splitlines()
    assert first == "charge_carelessly ran twice"
    where = re.fullmatch(
        r"  when the process dies after charge_carelessly, before its result is recorded  \(boundary (\d+)\)",
        when,
    )
    assert where
    assert "if running twice does no harm, say so: --idempotent charge_carelessly\n" in ended.out
    again = f"holdfast simulate {target} --boundary {where[1]} --seed 0"
    assert f"  again: {again}\n" in ended.out
    replayed = lite(*again.split()[1:], code=1).out
    assert "charge_carelessly executed, attempt 1\n" in replayed
    assert "the process dies after charge_carelessly, before its result is recorded\n" in replayed
    assert "charge_carelessly executed, attempt 2\n" in replayed
    assert "✗ 1 boundary of order.careless_order tried" in replayed


def test_no_step_is_executed_unless_asked(shop: Cli) -> None:
    """Only with --real does a simulation call services."""
    found = shop("simulate", "shop.py:order", "--json", *ALONE, code=1).json
    assert {finding["step"] for finding in found["findings"]} == {"shop.charge"}
    assert shop.effects() == []
    assert found["effects"] == {"shop.charge": [1, 2], "shop.ship": [1]}
    found = shop(
        "simulate", "shop.py:order", "--json", "--real", "--no-failures", "--idempotent", "charge", *ALONE
    ).json
    assert found["ok"]
    # Boundaries where a crash leaves the same behind are tried once.
    assert len(shop.effects()) > found["boundaries"] / 2
    assert not (shop.folder / "holdfast.db").exists()


def test_what_stands_in_can_be_given(shop: Cli) -> None:
    """--stub gives a result and --signal sends a signal. For a workflow that waits for a signal, the error says so."""
    big = ["--stub", 'charge={"id": "c9", "cents": 2000}', "--idempotent", "charge", *ALONE]
    waits = shop("simulate", "shop.py:order", *big, code=2)
    assert "signal simulated go" in waits.errors
    assert "`--signal NAME=JSON` sends every run a signal" in waits.errors
    ended = shop("simulate", "shop.py:order", *big, "--signal", "go=1", "--input", '["tok"]')
    assert ended.out.startswith("✓ ")
    assert ended.errors == ""
    assert (
        "charge() result: missing `cents`"
        in shop("simulate", "shop.py", "--stub", 'charge={"id": "c"}', code=2).errors
    )
    assert "no step is called 'pay'" in shop("simulate", "shop.py", "--stub", "pay=1", code=2).errors


def test_what_counts_can_be_said(shop: Cli) -> None:
    """--count-all trusts no key, --seeds adds boundaries, an unknown --boundary is refused, and the command that shows
    a finding again repeats the options."""
    found = shop("simulate", "shop.py", "--count-all", "--no-failures", "--json", *ALONE, code=1).json
    assert {finding["step"] for finding in found["findings"]} == {"shop.charge", "shop.ship"}
    assert found["findings"][0]["replay"].startswith(
        "holdfast simulate shop.py --interpreters 0 --no-failures --count-all --boundary "
    )
    calm = ["simulate", "shop.py", "--idempotent", "charge", "--final", "ship", "--unreached", "go", *ALONE]
    one = shop(*calm, "--json").json
    three = shop(*calm, "--seeds", "3", "--json").json
    assert three["boundaries"] >= 3 * one["boundaries"] - 10
    unknown = shop("simulate", "shop.py", "--boundary", "9999", code=2).errors
    assert "there is no boundary 9999: without this option all are tried, and counted" in unknown


def test_what_was_not_tried_fails(shop: Cli) -> None:
    """If the time limit came first, a step or signal never came up, or the run fails on made-up values, the command
    says so and exits with 1."""
    calm = ["simulate", "shop.py", "--idempotent", "charge", "--final", "ship", *ALONE]
    short = shop(*calm, "--unreached", "go", "--time-limit", "0.000001", code=1).out
    assert "boundaries or more\n  a limit was reached: `--time-limit S` tries longer\n" in short
    assert short.endswith("✗ 0 boundaries of shop.order tried: nothing was found, but not all was tried\n")
    never = shop(*calm, code=1).out
    assert (
        "not tried: the signal go, which never came\n  `--signal NAME=JSON` sends every run a signal; "
        "if that is intended, say so: --unreached go\n" in never
    )
    report = shop(*calm, "--json", code=1).json
    assert (report["ok"], report["findings"], len(report["untried"])) == (False, [], 1)
    assert shop(*calm, "--unreached", "go").out.startswith("✓ ")
    (shop.folder / "picky.py").write_text(
        APP.replace(
            "if (paid := await charge(card)).cents > 1000:", "if (paid := await charge(card)).cents < 7:"
        ).replace("await go.wait()", "raise ValueError('too little')")
    )
    picky = shop("simulate", "picky.py", "--idempotent", "charge", *ALONE, code=1).out
    assert "not tried: the step ship, which never ran" in picky
    assert "not tried: a run that succeeds\n  undisturbed, it ends failed: ValueError: too little" in picky


def test_another_hash_seed_is_tried(lite: Cli) -> None:
    """It finds a workflow that iterates over a set of texts, and names a command that does show it again."""
    (lite.folder / "names.py").write_text(
        """
from holdfast import step, workflow

@step
async def greet(name: str) -> None: ...

@workflow
async def greet_all(names: set[str] = {"ann", "bob", "cy"}) -> None:
    for name in names:
        await greet(name)

@workflow
async def greet_in_turn(names: set[str] = {"ann", "bob", "cy"}) -> None:
    for name in sorted(names):
        await greet(name)
"""
    )
    found = lite("simulate", "names.py:greet_all", "--idempotent", "greet", code=1).out
    assert found.startswith(
        "greet_all decides otherwise on the same history\n  when its history is replayed in another process"
    )
    again = next(line for line in found.splitlines() if line.startswith("  again: holdfast "))
    assert again.endswith(" --boundary 0 --seed 0")
    assert "decides otherwise" in lite(*again.split()[2:], code=1).out
    careful = lite("simulate", "names.py:greet_in_turn", "--idempotent", "greet", "--json").json
    assert careful["interpreters"] == 8
    assert lite(
        "simulate", "names.py:greet_all", "--idempotent", "greet", "--interpreters", "0"
    ).out.startswith("✓")
