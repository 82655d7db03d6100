"""`holdfast emit` and `holdfast events`, as people use them."""

from __future__ import annotations

import time

from tests.commands.conftest import Cli

APP = """
from holdfast import workflow
from holdfast.events import Event

paid = Event("payment.received", int)

@workflow(on="order.created")
async def order(new: dict) -> int:
    return await paid.wait(new["id"])
"""
ORDER = ("emit", "order.created", "--source", "shop", "--id", "9f2", "--data", '{"id": "order-42"}')


def until(cli: Cli, *words: str, has: str) -> str:
    """Ask until the answer has this text."""
    end = time.monotonic() + 60
    while True:
        out = cli(*words, code=None).out
        if has in out:
            return out
        assert time.monotonic() < end, out


def test_an_event_starts_a_run_and_another_one_ends_its_wait(cli: Cli) -> None:
    """The sender sees what became of it, and so does whoever lists events or asks why."""
    (cli.folder / "app.py").write_text(APP)
    process = cli.start("up", "app.py")
    until(cli, "agents", "--json", has="app.order")
    sent = cli(*ORDER, "--json").json
    (run,) = sent["started"]
    assert sent["new"]
    assert f"order.created 9f2 from shop, which had come before: started {run}" in cli(*ORDER).out
    why = until(cli, "why", run, has="payment.received")
    assert "for an event payment.received whose subject is 'order-42'" in why
    assert "`holdfast emit payment.received --subject order-42 --data JSON` sends one" in why
    assert "for an event payment.received" in cli("show", run).out
    woken = cli("emit", "payment.received", "--subject", "order-42", "--data", "-", given="900").out
    assert f"woke {run}" in woken
    until(cli, "show", run, "--json", has='"state": "succeeded"')
    listed = cli("events").out
    assert "order.created 9f2 from shop started event~" in listed
    assert "payment.received order-42" in listed
    shown = cli("events", "shop", "9f2").out
    assert '{"id":"order-42"}' in shown
    assert [one["type"] for one in cli("events", "--json", "--type", "order.created").json] == [
        "order.created"
    ]
    process.terminate()
    process.wait(30)


def test_what_cannot_be_sent_says_why(lite: Cli) -> None:
    """And nothing is written."""
    lite("migrate")
    assert "cannot be the type of an event" in lite("emit", "a b", code=2).errors
    assert "--data" in lite("emit", "x", "--data", "{", code=2).errors
    assert "NAME=TEXT" in lite("emit", "x", "--attribute", "y", code=2).errors
    assert "expected a time" in lite("emit", "x", "--time", "now", code=2).errors
    assert (
        "nobody takes it"
        in lite("emit", "x", "--attribute", "region=eu", "--time", "2026-11-16T08:00:00Z").out
    )
    assert lite("events", "--json").json[0]["attributes"] == {"region": "eu"}
    assert "no event has the source" in lite("events", "shop", "1", code=2).errors
    assert "by its source and its id" in lite("events", "shop", code=2).errors
    assert lite("events", "--type", "order.paid").out == "no event of the type order.paid has come\n"


def test_hooks_are_made_listed_rotated_and_removed(cli: Cli) -> None:
    """A secret is printed once, and only one that was made here."""
    cli("migrate")
    made = cli("hooks", "create", "billing", "--scheme", "standard")
    assert made.out.startswith("whsec_")
    assert "webhooks come in at /v1/in/billing" in made.errors
    (cli.folder / "secret").write_text("from the sender\n")
    given = cli("hooks", "create", "github", "--scheme", "github", "--secret-file", "secret", "--json").json
    assert (given["path"], "secret" in given) == ("/v1/in/github", False)
    listed = cli("hooks").out
    assert "/v1/in/billing standard" in listed
    assert "/v1/in/github github" in listed
    assert "whsec_" not in listed
    rotated = cli("hooks", "rotate", "billing", "--grace", "1h", "--json").json
    assert rotated["secret"] != made.out.strip()
    assert rotated["old_until"] is not None
    assert "is removed" in cli("hooks", "remove", "billing").out
    assert "no hook is called" in cli("hooks", "remove", "billing", code=2).errors
    assert "there is a hook" in cli("hooks", "create", "github", "--scheme", "github", code=2).errors
    assert "--scheme" in cli("hooks", "create", "x", code=2).errors
    assert "cannot be the name" in cli("hooks", "create", "A b", "--scheme", "hmac", code=2).errors
    path = cli("hooks", "create", "billing", "--scheme", "hmac", "--namespace", "acme", "--json").json["path"]
    assert path == "/v1/in/~YWNtZS8vYmlsbGluZw"
