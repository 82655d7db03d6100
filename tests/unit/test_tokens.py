"""A token's text says what it is, and a row says whether it is good. Nothing here reads a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.access import MAY, STORE_WIDE, Act, Identity, Kind, Role, local
from holdfast.access.tokens import TokenText, identity_of, is_good, make, namespaces, narrowed, read
from holdfast.errors import Forbidden, InvalidInput
from holdfast.model import TokenRow

TOKEN = make(Role.OPERATOR, bytes(range(12)), bytes(range(32)))


def row(**given: object) -> TokenRow:
    fields: dict[str, object] = {
        "id": TOKEN.id,
        "name": "ci",
        "role": "operator",
        "namespaces": '["acme"]',
        "can": "[]",
        "payloads": True,
        "made_by": "me",
        "made_at": 0.0,
        "expires_at": 100.0,
        "revoked_at": None,
        "used_at": None,
        "digest": TOKEN.digest,
        "old_digest": None,
        "old_until": None,
    }
    return TokenRow(**{**fields, **given})  # type: ignore[arg-type]


@given(st.sampled_from(list(Role)), st.binary(min_size=12, max_size=12), st.binary(min_size=32, max_size=32))
def test_a_token_is_read_as_it_was_made(role: Role, id_bytes: bytes, secret: bytes) -> None:
    """And its text does not show the secret's digest."""
    token = make(role, id_bytes, secret)
    assert read(token.text) == token
    assert token.digest.hex() not in token.text


@given(st.integers(0, len(TOKEN.text) - 1), st.characters(codec="ascii"))
def test_a_typo_is_noticed_offline(place: int, instead: str) -> None:
    """The checksum does not fit any more."""
    text = TOKEN.text[:place] + instead + TOKEN.text[place + 1 :]
    assert (read(text) is None) == (text != TOKEN.text)


def test_a_token_is_good_until_it_expires_or_is_revoked() -> None:
    """And only in the role and with the secret of its row."""
    assert is_good(TOKEN, row(), 99.0)
    assert not is_good(TOKEN, row(), 100.0)
    assert is_good(TOKEN, row(expires_at=None), 1e12)
    assert not is_good(TOKEN, row(revoked_at=1.0), 2.0)
    assert not is_good(TOKEN, row(role="admin"), 2.0)
    assert not is_good(TOKEN, row(digest=b"x" * 32), 2.0)
    assert not is_good(TOKEN, None, 2.0)


def test_the_old_secret_is_good_for_its_grace_time() -> None:
    """And not longer than the token itself."""
    new = TokenText(TOKEN.role, TOKEN.id, "another")
    rotated = row(digest=new.digest, old_digest=TOKEN.digest, old_until=50.0)
    assert is_good(new, rotated, 60.0)
    assert is_good(TOKEN, rotated, 49.0)
    assert not is_good(TOKEN, rotated, 50.0)
    ending = row(digest=new.digest, old_digest=TOKEN.digest, old_until=50.0, expires_at=40.0)
    assert not is_good(TOKEN, ending, 45.0)


def test_what_a_token_may_is_decided_by_its_role_and_namespaces() -> None:
    """What is about the whole store needs all namespaces."""
    who = identity_of(row())
    assert (who.kind, who.actor) == (Kind.TOKEN, f"ci ({TOKEN.id[:8]})")
    for act in Act:
        assert who.may(act) == (Role.OPERATOR in MAY[act] and act not in STORE_WIDE)
        if not who.may(act):
            with pytest.raises(Forbidden):
                who.demand(act)
    everywhere = identity_of(row(namespaces='["*"]'))
    assert all(everywhere.may(act) == (Role.OPERATOR in MAY[act]) for act in Act)
    assert all(local("me").may(act) for act in Act)


def test_an_identity_is_within_its_namespaces() -> None:
    """Outside of them it is refused, whatever exists there."""
    who = identity_of(row(namespaces='["acme", "umbrella"]'))
    assert who.within("acme").sees("acme")
    assert not who.within("acme").sees("umbrella")
    with pytest.raises(Forbidden):
        who.within("default")


def test_a_token_is_narrowed_by_patterns() -> None:
    """Without one it may start everything."""

    def may(can: tuple[str, ...], name: str) -> bool:
        return Identity(Kind.TOKEN, "", "", Role.STARTER, frozenset({"*"}), can=can).may_start(name)

    assert may((), "shop.order")
    assert may(("workflows:shop.*",), "shop.order")
    assert not may(("workflows:shop.*",), "bank.order")


@pytest.mark.parametrize("given", ["", "a/b", "a//b", "a b", "é", "x" * 101, "a\0"])
def test_what_cannot_be_a_namespace_is_refused(given: str) -> None:
    """A name with a slash could be read as the beginning of an id."""
    with pytest.raises(InvalidInput):
        namespaces((given,))


@pytest.mark.parametrize("given", ["", "shop.*", "workflows:", "steps:", "event:x", "workflows:a b"])
def test_what_narrows_nothing_is_refused(given: str) -> None:
    """A typo would leave the token wide open, or shut."""
    with pytest.raises(InvalidInput):
        narrowed((given,))
