"""`holdfast tokens`, as an operator uses it."""

from __future__ import annotations

from holdfast.access.tokens import read
from tests.commands.conftest import Cli


def test_a_token_is_made_listed_rotated_and_revoked(cli: Cli) -> None:
    """Its secret is printed once, alone on standard output."""
    made = cli(
        "tokens", "create", "--role", "operator", "--name", "ci", "--namespace", "acme", "--expires", "30d"
    )
    token = read(made.out.strip())
    assert token is not None
    assert made.out.count("\n") == 1
    assert token.id in made.errors
    assert token.secret not in made.errors
    (listed,) = cli("tokens", "--json").json
    assert (listed["id"], listed["name"], listed["namespaces"]) == (token.id, "ci", ["acme"])
    assert listed["state"] == "good"
    assert token.secret not in cli("tokens").out
    rotated = cli("tokens", "rotate", token.id, "--json").json
    again = read(rotated["token"])
    assert again is not None
    assert (again.id, again.role) == (token.id, token.role)
    assert again.secret != token.secret
    assert cli("tokens", "revoke", token.id).code == 0
    assert "revoked before" in cli("tokens", "revoke", token.id, code=1).out
    assert cli("tokens", "rotate", token.id, code=2).errors.startswith("error: the token")
    assert [one["state"] for one in cli("tokens", "--json").json] == ["revoked"]


def test_what_cannot_be_meant_is_refused(lite: Cli) -> None:
    """With one line that says what to write."""
    assert "--role" in lite("tokens", "create", code=2).errors
    assert "say which token" in lite("tokens", "rotate", code=2).errors
    assert "takes no id" in lite("tokens", "list", "x", code=2).errors
    assert "namespace" in lite("tokens", "create", "--role", "viewer", "--namespace", "a//b", code=2).errors
    assert "narrows nothing" in lite("tokens", "create", "--role", "starter", "--can", "shop", code=2).errors
    assert (
        "length of time" in lite("tokens", "create", "--role", "viewer", "--expires", "soon", code=2).errors
    )
    token = lite("tokens", "create", "--role", "viewer", "--expires", "never").out.strip()
    assert "others can read a command line" in lite("tokens", "revoke", token, code=2).errors
    assert "no token has the id" in lite("tokens", "revoke", "0" * 24, code=2).errors
    (listed,) = lite("tokens", "--json").json
    assert listed["expires_at"] is None
