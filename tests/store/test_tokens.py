"""Tokens in the store: what is recorded about them, and what is not."""

from __future__ import annotations

import pytest

from holdfast.errors import WrongState
from holdfast.model import NewToken
from holdfast.store.store import Store

NEW = NewToken("one", "ci", "operator", '["acme"]', "[]", False, b"digest", 3600.0)


async def test_a_token_is_kept_as_it_was_made(store: Store) -> None:
    """With the store's own times, and a row in the journal."""
    before = await store.now()
    assert await store.tokens.add_token(NEW, "ann")
    row = await store.tokens.token("one")
    assert row is not None
    assert (row.name, row.role, row.namespaces, row.payloads) == ("ci", "operator", '["acme"]', False)
    assert (row.digest, row.made_by, row.revoked_at, row.used_at) == (b"digest", "ann", None, None)
    assert row.made_at >= before
    assert row.expires_at == pytest.approx(row.made_at + 3600)
    assert await store.tokens.tokens(10) == [row]
    assert await store.tokens.these_tokens(["one", "nobody"]) == [row]
    assert await store.tokens.these_tokens([]) == []
    assert [entry.verb for entry in await store.reads.journal(None)] == ["token create"]
    assert not await store.tokens.add_token(NEW, "bob")


async def test_a_token_may_last_for_ever(store: Store) -> None:
    """Also after a rotation."""
    await store.tokens.add_token(NewToken("one", "ci", "viewer", "[]", "[]", True, b"a"), "ann")
    await store.tokens.rotate_token("one", b"b", grace_s=0.0, expires_s=None, actor="ann")
    row = await store.tokens.token("one")
    assert row is not None
    assert row.expires_at is None


async def test_a_rotation_keeps_the_old_secret_for_a_while(store: Store) -> None:
    """The token lasts as long from now as it did from its beginning, unless another time is given."""
    await store.tokens.add_token(NEW, "ann")
    await store.tokens.rotate_token("one", b"new", grace_s=60.0, expires_s=None, actor="ann")
    row, now = await store.tokens.token("one"), await store.now()
    assert row is not None
    assert (row.digest, row.old_digest) == (b"new", b"digest")
    assert row.old_until == pytest.approx(now + 60, abs=30)
    assert row.expires_at == pytest.approx(now + 3600, abs=30)
    await store.tokens.rotate_token("one", b"newer", grace_s=0.0, expires_s=7200.0, actor="ann")
    row = await store.tokens.token("one")
    assert row is not None
    assert row.expires_at == pytest.approx(now + 7200, abs=30)


async def test_a_token_that_is_not_good_gets_no_other_secret(store: Store) -> None:
    """A revoked one stays revoked, and an expired one expired."""
    await store.tokens.add_token(NEW, "ann")
    assert await store.tokens.revoke_token("one", "ann")
    assert not await store.tokens.revoke_token("one", "ann")
    await store.tokens.add_token(NewToken("two", "ci", "viewer", "[]", "[]", True, b"a", -1.0), "ann")
    for token in ("one", "two", "three"):
        with pytest.raises(WrongState):
            await store.tokens.rotate_token(token, b"x", grace_s=0.0, expires_s=None, actor="ann")
    with pytest.raises(WrongState, match="no token has the id"):
        await store.tokens.revoke_token("three", "ann")


async def test_use_is_noted_once_an_hour(store: Store) -> None:
    """So a token that is used a thousand times a second costs no writes."""
    await store.tokens.add_token(NEW, "ann")
    assert [await store.tokens.use_token("one") for _ in range(3)] == [1, 0, 0]
    row = await store.tokens.token("one")
    assert row is not None
    assert row.used_at is not None
