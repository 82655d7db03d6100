"""What is worth an alert, who gets it, and where a webhook may go: decisions without a store."""

from __future__ import annotations

import json
import random
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import InvalidSettings
from holdfast.model import Alert, AlertKind, Level, NewAlert, NodeRow, Poison
from holdfast.outbound import NotReached, checked_addresses, is_allowed, networks
from holdfast.questions import asked_by, notice_key, notified
from holdfast.store.answers import FailureNote, Late
from holdfast.supervisor.alerts import compare, in_words, judge_backlog, judge_failures
from holdfast.supervisor.channels import Notice
from holdfast.supervisor.channels.settings import load_channels
from holdfast.supervisor.outbox import back_off_s, route
from holdfast.supervisor.pools import judge_pools
from holdfast.supervisor.quarantine import released
from holdfast.supervisor.retention import keeps_s

FAILURE = '{"type": "builtins.ValueError", "message": "bad card"}'


def failed_run(run_id: str = "r", **more: Any) -> FailureNote:
    values: dict[str, Any] = {
        "workflow": "shop.order",
        "state": "failed",
        "parent_id": None,
        "error": FAILURE,
    }
    return FailureNote(1, run_id, 0, **(values | more))


def failed_step(**more: Any) -> FailureNote:
    values: dict[str, Any] = {
        "key": "charge#2",
        "name": "shop.charge",
        "kind": "call",
        "attempt": 3,
        "losses": 0,
        "excused": 0,
        "attempts_max": 3,
        "error": FAILURE,
    }
    return FailureNote(2, "r", 2, "shop.order", "running", None, **(values | more))


def test_failed_runs_of_a_workflow_are_one_alert() -> None:
    """It has the message of the first run, and how many there were."""
    (alert,) = judge_failures([failed_run("a"), failed_run("b"), failed_run("c")])
    assert (alert.kind, alert.level, alert.run_id, alert.times) == ("run failed", "error", "a", 3)
    assert alert.message == "run a of shop.order failed: ValueError: bad card"


def test_a_child_and_a_run_that_is_gone_are_no_alert() -> None:
    """A child's end is its parent's affair; a run that is gone has nothing to report."""
    assert judge_failures([failed_run(parent_id="p"), failed_run(workflow=None)]) == []


def test_signals_that_were_set_aside_are_one_alert_of_their_workflow_and_name() -> None:
    """The alert has the first run's reason and a count. A signal or run that is gone meanwhile does not count."""

    def note(
        number: int, run_id: str, name: str, error: str | None, workflow: str | None = "shop.order"
    ) -> FailureNote:
        return FailureNote(number, run_id, -number, workflow, "running", None, error, name=name)

    alerts = judge_failures(
        [
            note(1, "a", "paid", "expected `int`, got `str`"),
            note(2, "b", "paid", "expected `int`, got `null`"),
            note(3, "b", "sent", "missing `id`"),
            note(4, "c", "sent", None),
            note(5, "d", "sent", "missing `id`", None),
        ]
    )
    assert [(one.kind, one.key, one.run_id, one.times) for one in alerts] == [
        (AlertKind.SIGNAL_SET_ASIDE, "signal set aside:shop.order:paid", "a", 2),
        (AlertKind.SIGNAL_SET_ASIDE, "signal set aside:shop.order:sent", "b", 1),
    ]
    assert alerts[0].message == (
        "run a of shop.order set a signal 'paid' aside: expected `int`, got `str`; `holdfast why a` says what it waits for"
    )


def test_a_run_held_by_its_scheduler_is_an_alert_unless_it_was_released() -> None:
    """This holds for a child, too: nobody else would report it."""
    notes = [failed_run("a", state="held"), failed_run("b", state="held", parent_id="p")]
    (alert,) = judge_failures([*notes, failed_run("c", state="running")])
    assert (alert.kind, alert.run_id, alert.times) == ("run held", "a", 2)
    assert "`holdfast why a`" in alert.message


def test_a_pool_in_trouble_is_an_alert() -> None:
    """There is one for each pool of a host, with the pool's own message, and none for a pool that is well or for an
    agent."""

    def node(host: str, name: str, trouble: str | None, roles: str = "pool") -> NodeRow:
        offers = {"pool": {"name": name}, "pulse": {"trouble": trouble} if trouble else {}}
        return NodeRow(f"{host}-{name}", host, 7, roles, json.dumps(offers), 1, 0.0, 0.0, None)

    nodes = [
        node("east", "web", "agents do not stay"),
        node("east", "web", "agents do not stay"),
        node("west", "web", "agents do not stay"),
        node("west", "mail", None),
        node("west", "other", "of no pool", roles="agent"),
    ]
    found = judge_pools(nodes)
    assert [one.key for one in found] == ["pool trouble:east:web", "pool trouble:west:web"]
    assert found[0].message == "east pid 7: agents do not stay"


@pytest.mark.parametrize(
    ("step", "alerts"),
    [
        ({}, True),
        ({"attempt": 1}, False),
        ({"attempt": 5, "excused": 2}, True),
        ({"attempt": 5, "timeouts": 1, "throttled": 1}, True),
        ({"attempt": 4, "losses": 4}, False),
        ({"attempt": 4, "losses": 3, "error": '{"type": "…", "ending": "lost"}'}, True),
        ({"attempt": 3, "timeouts": 2, "error": '{"type": "…", "ending": "timed out"}'}, True),
        ({"attempt": 61, "throttled": 60, "error": '{"type": "holdfast.errors.RetryIn"}'}, True),
        ({"kind": "undo"}, False),
        ({"kind": None}, False),
    ],
)
def test_a_step_is_exhausted_when_a_budget_is_spent(step: dict[str, Any], alerts: bool) -> None:
    """A step that stopped with attempts left is not exhausted. An undo that gives up has no alert of its own: its run
    has one."""
    assert bool(judge_failures([failed_step(**step)])) is alerts


def test_steps_in_quarantine_are_one_alert_per_fingerprint() -> None:
    """There is one however many runs wait, and for an undo, too. The message says what to do."""
    notes = [
        failed_step(fingerprint="aa"),
        failed_step(fingerprint="aa", kind="undo"),
        failed_step(fingerprint="bb"),
    ]
    one, other = judge_failures(notes)
    assert (one.kind, one.level, one.key, one.times) == (
        "step quarantined",
        "error",
        "step quarantined:aa",
        2,
    )
    assert other.key == "step quarantined:bb"
    assert (
        "is in quarantine (aa) after 3 attempts: ValueError: bad card; `holdfast quarantine`" in one.message
    )


def test_the_alert_of_a_fingerprint_closes_with_its_last_step() -> None:
    """The alerts of other fingerprints stay open."""
    opened = [
        alert(AlertKind.STEP_QUARANTINED, id=1, key="step quarantined:aa"),
        alert(AlertKind.STEP_QUARANTINED, id=2, key="step quarantined:bb"),
    ]
    left = Poison("bb", "shop.charge", "StepLost", "agent lost", 1, 1, 0.0, 0.0, "r")
    assert released(opened, [left]) == [1]


def test_a_backlog_is_one_alert_per_step_and_workflow() -> None:
    """The alert names what waits, and the command that says why."""
    steps = [Late("shop.charge", "a", 0.0), Late("shop.charge", "b", 10.0)]
    one, other = judge_backlog(steps, [Late("shop.order@1", "c", 30.0)], 100.0)
    assert (
        one.message == "step shop.charge has been waiting for an agent for 100 s: `holdfast why a` says why"
    )
    assert (
        other.message
        == "run shop.order@1 has been waiting for a scheduler for 70 s: `holdfast why c` says why"
    )


def alert(kind: AlertKind = AlertKind.RUN_FAILED, **more: Any) -> Alert:
    values: dict[str, Any] = {
        "id": 1,
        "at": 1000.0,
        "kind": kind,
        "run_id": "r",
        "message": "it failed",
        "sent_at": None,
        "level": "error",
        "key": "k",
        "times": 1,
        "last_at": 1000.0,
        "cleared_at": None,
    }
    return Alert(**(values | more))


def test_what_lasts_is_compared_with_what_is_open() -> None:
    """What is new is raised, and what is gone is cleared. Nothing is cleared if not everything was looked at. The
    number of open alerts is limited."""

    def lasts(key: str) -> NewAlert:
        return NewAlert(AlertKind.BACKLOG, Level.WARNING, key, "it waits")

    known = [alert(AlertKind.BACKLOG, id=3, key="gone"), alert(AlertKind.BACKLOG, id=4, key="there")]
    lasting = [lasts("there"), lasts("new"), lasts("newer")]
    assert compare(known, lasting) == (lasting[1:], [3])
    assert compare(known, lasting, whole=False) == (lasting[1:], [])
    assert compare(known, lasting, most=2) == ([lasting[1]], [3])
    assert compare(known, lasting, whole=False, most=2) == ([], [])


def test_a_stuck_runs_error_is_put_into_words() -> None:
    """The row has the error as it was recorded."""
    message = in_words(alert(AlertKind.RUN_STUCK, message=FAILURE))
    assert message == "run r is stuck (`holdfast why r` says what you can do): ValueError: bad card"


# --- the outbox -----------------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "channels": {
        "ops": {"type": "command", "argv": ["true"]},
        "stuck": {"type": "command", "argv": ["true"], "kinds": ["run stuck"]},
        "grave": {"type": "command", "argv": ["true"], "level": "error"},
        "all": {"type": "command", "argv": ["true"], "level": "info"},
    }
}


@pytest.mark.parametrize(
    ("routed", "of", "event", "far", "names"),
    [
        (0, {}, "raised", 1, ["ops", "grave", "all"]),
        (0, {"level": "info"}, "raised", 1, ["all"]),
        (0, {"kind": AlertKind.RUN_STUCK}, "raised", 1, ["ops", "stuck", "grave", "all"]),
        (0, {"kind": AlertKind.BACKLOG, "cleared_at": 1001.0}, "raised", 2, []),
        (0, {"cleared_at": 1001.0}, "raised", 1, ["ops", "grave", "all"]),
        (0, {"last_at": 10.0}, "raised", 2, []),
        (1, {"cleared_at": 1001.0}, "cleared", 2, []),
        (1, {"cleared_at": 1001.0, "times": 2}, "cleared", 2, ["ops", "grave", "all"]),
        (1, {"kind": AlertKind.BACKLOG, "cleared_at": 1001.0}, "cleared", 2, ["ops", "grave", "all"]),
    ],
)
def test_which_channels_get_an_alert(
    routed: int, of: dict[str, Any], event: str, far: int, names: list[str]
) -> None:
    """Level and kind decide. What was over before it was sent, or is old, goes to no channel, and neither does the end
    of a single event."""
    channels = load_channels(SETTINGS, Environment())
    numbers = count()
    found = route(routed, alert(**of), channels, 1002.0, 500.0, lambda: str(next(numbers)))
    assert (found.event, found.routed, [channel for _, channel in found.deliveries]) == (event, far, names)


EVENTS = {
    "run failed",
    "run held",
    "step exhausted",
    "signal set aside",
    "agent offline",
    "leader lost",
    "ask",
}


@pytest.mark.parametrize("kind", AlertKind)
def test_the_end_of_a_state_is_news_and_that_of_a_single_event_is_not(kind: AlertKind) -> None:
    """A failure has happened and stays so. A backlog, or a run that is stuck, is over one day."""
    channels = load_channels(SETTINGS, Environment())
    found = route(1, alert(kind, cleared_at=1001.0), channels, 1002.0, 500.0, lambda: "d")
    assert bool(found.deliveries) is (kind not in EVENTS)


ASKED: dict[str, Any] = {
    "channels": {
        "anna": {"type": "command", "argv": ["true"], "kinds": ["run stuck"]},
        "chat": {"type": "command", "argv": ["true"]},
        "asks": {"type": "command", "argv": ["true"], "level": "info", "kinds": ["ask"]},
        "ops": {"type": "command", "argv": ["true"]},
    },
    "people": {"anna": {"channels": ["anna"]}},
    "teams": {"finance": {"channels": ["chat", "anna"]}},
}


@pytest.mark.parametrize(
    ("who", "names"),
    [("person:anna", ["anna", "asks"]), ("team:finance", ["anna", "chat", "asks"]), ("person:bob", ["asks"])],
)
def test_what_people_are_asked_goes_to_them(who: str, names: list[str]) -> None:
    """Through the channels that are named for them, whatever else these send, and through those that want all asks."""
    key = notice_key(who, "ask-1", 1000.0)
    assert (notified(key), asked_by(key)) == (who, "ask-1")
    given = alert(AlertKind.ASK, level="info", key=key)
    found = route(0, given, load_channels(ASKED, Environment()), 1002.0, 500.0, lambda: "d")
    assert [channel for _, channel in found.deliveries] == names


@pytest.mark.parametrize(
    ("people", "said"),
    [
        ({"anna": {"channels": ["none"]}}, "no channel 'none'"),
        ({"an na": {"channels": []}}, "cannot be the name"),
    ],
)
def test_people_have_names_and_channels_that_exist(people: dict[str, Any], said: str) -> None:
    """A typo is found when a process starts."""
    with pytest.raises(InvalidSettings, match=said):
        load_channels({"people": people}, Environment())


def test_a_delivery_backs_off() -> None:
    """The wait doubles, is spread, and is never longer than its limit. All tries together last about an hour."""
    config = Config()
    assert [back_off_s(n, config, 0.5) for n in (1, 2, 3, 20)] == [5.0, 10.0, 20.0, 900.0]
    spread = [back_off_s(1, config, random.Random(seed).random()) for seed in range(50)]
    assert 3.75 <= min(spread) < 4.5
    assert 5.5 < max(spread) <= 6.25
    assert 1800 < sum(back_off_s(n, config, 0.5) for n in range(1, config.alert_tries_max)) < 2 * 3600


def test_how_long_runs_are_kept() -> None:
    """They are kept for ever by default. Runs that did not succeed may be kept longer."""
    assert keeps_s(Config()) == {}
    found = keeps_s(Config(keep_days=1, keep_failed_days=7))
    assert found == {"succeeded": 86_400.0, "failed": 604_800.0, "undone": 604_800.0, "cancelled": 604_800.0}
    assert set(keeps_s(Config(keep_failed_days=7))) == {"failed", "undone", "cancelled"}
    assert keeps_s(Config(keep_days=0))["failed"] == 0.0


# --- where a webhook may go -----------------------------------------------------------------------------------------

INSIDE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "192.0.0.8",
    "198.18.0.1",
    "203.0.113.7",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:7f00:1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "fe80::1",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
]
OUTSIDE = ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_refused(address: str) -> None:
    """Loopback, private, link-local, shared, reserved and multicast addresses are refused, also if they are written as
    IPv6."""
    assert not is_allowed(ip_address(address), [])


@pytest.mark.parametrize("address", OUTSIDE)
def test_a_public_address_is_allowed(address: str) -> None:
    """A public address is the same host for everybody."""
    assert is_allowed(ip_address(address), [])


def test_only_the_network_that_is_named_is_allowed() -> None:
    """Naming one network does not allow another."""
    allowed = networks(["10.1.0.0/16", "::1"])
    assert is_allowed(ip_address("10.1.2.3"), allowed)
    assert is_allowed(ip_address("::ffff:10.1.2.3"), allowed)
    assert is_allowed(ip_address("::1"), allowed)
    for other in ("10.2.0.1", "127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254"):
        assert not is_allowed(ip_address(other), allowed)


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "::1", "0"])
async def test_a_name_is_judged_by_where_it_leads(host: str) -> None:
    """Loopback is refused however it is spelled."""
    with pytest.raises(NotReached, match=r"not a public address|cannot be resolved"):
        await checked_addresses(host, 80, [])


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "says"),
    [
        ({"type": "pigeon"}, "pigeon"),
        ({"type": "webhook"}, "url_env"),
        ({"type": "webhook", "url": "ftp://example.com/x"}, "https://host/path"),
        ({"type": "webhook", "url": "https://user:pw@example.com/x"}, "without user"),
        ({"type": "webhook", "url": "https://example.com/a b"}, "ASCII without spaces"),
        ({"type": "webhook", "url": "https://example.com:99999/"}, "range"),
        ({"type": "webhook", "url": "https://example.com/", "secret": "s3cret"}, "unknown field `secret`"),
        ({"type": "webhook", "url": "https://example.com/", "secret_env": "NOT_SET"}, "NOT_SET is not set"),
        ({"type": "webhook", "url": "https://example.com/", "allow": ["10.0.0.0/99"]}, "10.0.0.0/99"),
        ({"type": "webhook", "url": "https://example.com/", "ca_file": "/no/such"}, "ca_file"),
        ({"type": "webhook", "url": "https://example.com/", "timeout_s": 0}, "timeout_s"),
        ({"type": "webhook", "url": "https://example.com/", "kinds": ["run lost"]}, "kinds"),
        ({"type": "email", "host": "mail", "from": "a@example.com", "to": []}, "nobody"),
        ({"type": "email", "host": "mail", "to": ["a@example.com"]}, "from"),
        (
            {
                "type": "email",
                "host": "m",
                "from": "a@b.c",
                "to": ["d@e.f"],
                "tls": "none",
                "password_env": "PW",
            },
            "in the clear",
        ),
        ({"type": "email", "host": "m", "from": "a@b.c\nBcc: x@y.z", "to": ["d@e.f"]}, "channel 'c'"),
        ({"type": "command", "argv": []}, "no program"),
    ],
)
def test_wrong_settings_are_refused_by_name(channel: dict[str, Any], says: str) -> None:
    """The error comes at start-up, and names the place but not the secret."""
    with pytest.raises(InvalidSettings, match=says) as caught:
        load_channels({"channels": {"c": channel}}, Environment(), {"PW": "s3cret"})
    assert "s3cret" not in str(caught.value)


def test_a_settings_file_is_toml_or_json(tmp_path: Path) -> None:
    """The ending of its name decides. A file that cannot be read is named in the error."""
    toml, json = tmp_path / "alerts.toml", tmp_path / "alerts.json"
    toml.write_text('[channels.ops]\ntype = "command"\nargv = ["true"]\n')
    json.write_text('{"channels": {"ops": {"type": "command", "argv": ["true"]}}}')
    assert [load_channels(file, Environment())[0].name for file in (toml, json)] == ["ops", "ops"]
    toml.write_text("[channels")
    for bad in (toml, tmp_path / "missing.toml"):
        with pytest.raises(InvalidSettings, match=bad.name):
            load_channels(bad, Environment())


def test_a_notice_reads_as_a_line() -> None:
    """The line says how often it happened, and that it is over."""
    notice = Notice(
        delivery="d", event="cleared", kind="run failed", level="error", message="it failed", times=3
    )
    assert notice.line == "over: run failed: it failed (3 times)"
