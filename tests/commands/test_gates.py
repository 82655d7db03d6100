"""`hold`, `release`, `holds` and `breakers`: what keeps steps from beginning."""

from tests.commands.conftest import Cli, until

OPTIONS = [
    ("--workflow", "gated", "app.gated", "workflow app.gated"),
    ("--step", "first", "app.first", "step app.first"),
    ("--dependency", "app.first", "app.first", "dependency app.first"),
    ("--namespace", "default", "default", "namespace default"),
    ("--all", None, "default", "namespace default"),
]


def up(cli: Cli) -> None:
    """Start a process that hosts every role and has app.py loaded."""
    cli("migrate")
    process = cli.start("up", "app.py")
    until(lambda: cli("agents", "--json").json, process)


def test_what_is_held_waits_until_it_is_released(cli: Cli) -> None:
    """A scope is named by a short or a whole name. `holds` lists who holds it and why, and `why` names the hold. After
    `release` the run goes to its end."""
    cli.open_gate()
    up(cli)
    for option, given, value, words in OPTIONS:
        scope = [option] if given is None else [option, given]
        shown = cli("hold", *scope, "--note", "stocktaking").out
        kind = words.partition(" ")[0]
        assert shown.startswith(f"‖ {words} is held; `holdfast release --{kind}")
        (row,) = cli("holds", "--json").json
        assert (row["scope"], row["value"], row["note"]) == (kind, value, "stocktaking")
        run_id = f"held{option}"
        cli("start", "app.py:gated", "--input", "[1]", "--id", run_id)
        until(lambda run_id=run_id: "has been held by" in cli("why", run_id).out)  # type: ignore[misc]
        assert (cli("show", run_id, "--json").json["steps"][0]["attempts"]) == 0
        assert cli("release", *scope, "--json").json["value"] == value
        assert cli("watch", run_id, "--json").json["state"] == "succeeded"


def test_holds_are_listed_for_people(lite: Cli) -> None:
    """`holds` says what is held, by whom, why, and how it is released. `doctor` counts the holds."""
    lite("start", "app.py:gated", "--id", "h")
    assert lite("holds").out.startswith("nothing is held")
    lite("hold", "--namespace", "default", "--note", "unpaid")
    lite("hold", "--all", "--namespace", "*")
    assert "was held before" in lite("hold", "--all").out
    shown = lite("holds").out
    assert "‖ namespace default\n" in shown
    assert "ago: unpaid; `holdfast release --namespace default`" in shown
    assert "‖ everything\n" in shown
    assert "`holdfast release --all --namespace '*'`" in shown
    assert lite("holds", "--namespace", "acme", "--json").json[0]["scope"] == "all"
    assert "2 holds of operators" in lite("doctor").out
    assert lite("doctor", "--json").json["holds"] == 2


def test_a_hold_names_one_thing(lite: Cli) -> None:
    """Naming nothing or two things is a mistake, and so is releasing what is not held. A name that is not known is
    held, with a hint."""
    lite("start", "app.py:gated", "--id", "h")
    for wrong in ([], ["h", "--all"], ["--step", "a", "--workflow", "b"]):
        assert "name one thing" in lite("hold", *wrong, code=2).errors
        assert "name one thing" in lite("release", *wrong, code=2).errors
    assert "there is no hold on the namespace 'acme'" in lite("release", "--namespace", "acme", code=2).errors
    everything = lite("release", "--all", "--namespace", "*", code=2).errors
    assert "there is no hold on everything" in everything
    assert "there is no hold on the namespace 'default'" in lite("release", "--all", code=2).errors
    assert "nothing here is called ordr yet: is that the name?" in lite("hold", "--workflow", "ordr").out
    assert lite("hold", "--workflow", "x", "--json").json["known"] is False


def test_a_held_run_is_not_in_the_list_of_holds(lite: Cli) -> None:
    """A run is held and released by its id, and `holds` does not list it."""
    lite("start", "app.py:gated", "--id", "h")
    assert lite("hold", "h", "--json").json == {"id": "h", "state": "held"}
    assert lite("holds", "--json").json == []
    assert lite("release", "h", "--json").json == {"id": "h", "state": "pending"}


def test_a_breaker_is_opened_and_reset_by_hand(cli: Cli) -> None:
    """Its steps wait, and `why` and the list say who opened it. After a reset it is tried, and closes by itself."""
    cli.open_gate()
    up(cli)
    assert cli("breakers").out == "no dependency has had trouble yet\n"
    assert "has no breaker" in cli("breakers", "reset", "app.first", code=2).errors
    shown = cli("breakers", "open", "app.first", "--note", "maintenance", "--json").json
    assert (shown["name"], shown["state"], shown["forced"], shown["note"]) == (
        "app.first",
        "open",
        True,
        "maintenance",
    )
    cli("start", "app.py:gated", "--input", "[1]", "--id", "b")
    until(lambda: "the breaker of app.first was opened by" in cli("why", "b").out)
    assert "✗ app.first open" in cli("breakers").out
    assert "app.first is not closed: steps wait" in cli("doctor").out
    assert cli.effects() == []
    assert "it is tried now" in cli("breakers", "reset", "app.first").out
    assert cli("watch", "b", "--json").json["state"] == "succeeded"
    until(lambda: cli("breakers", "--json").json[0]["state"] == "closed")
    assert "✓ app.first closed" in cli("breakers").out


def test_a_breaker_is_kept_closed_by_hand(lite: Cli) -> None:
    """The list says who keeps it closed, until it is reset."""
    lite("start", "app.py:gated", "--id", "b")
    assert "is kept closed until" in lite("breakers", "close", "stripe", "--note", "I know").out
    assert "kept closed by" in lite("breakers").out
    assert "is closed and decides by itself again" in lite("breakers", "reset", "stripe").out
    assert "nothing is wrong" in lite("breakers").out


def test_only_an_act_on_a_breaker_needs_a_name(lite: Cli) -> None:
    """`open` without a name and `list` with a name are mistakes."""
    lite("start", "app.py:gated", "--id", "b")
    assert "name the dependency to open" in lite("breakers", "open", code=2).errors
    assert "dependency: give the name of one" in lite("breakers", "open", "", code=2).errors
    assert "`list` takes no name" in lite("breakers", "list", "stripe", code=2).errors
