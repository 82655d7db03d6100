"""Sessions of browsers in the store."""

from __future__ import annotations

from holdfast.model import SessionRow
from holdfast.store.sessions import SESSIONS_MAX
from holdfast.store.store import Store


async def test_a_session_is_kept_until_it_ends(store: Store) -> None:
    """With the token's id and digest. The second one with the same digest adds nothing."""
    before = await store.now()
    assert await store.sessions.add_session(b"a", "token", b"digest", 3600.0)
    assert not await store.sessions.add_session(b"a", "other", b"digest", 3600.0)
    row = await store.sessions.session(b"a")
    assert row is not None
    assert row == SessionRow("token", b"digest", row.expires_at)
    assert row.expires_at >= before + 3600
    assert await store.sessions.end_session(b"a") == 1
    assert await store.sessions.session(b"a") is None
    assert await store.sessions.end_session(b"a") == 0


async def test_a_token_has_a_number_of_sessions(store: Store) -> None:
    """One more ends the oldest. Those of other tokens stay."""
    assert await store.sessions.add_session(b"other", "other", b"digest", 60.0)
    names = [b"%03d" % number for number in range(SESSIONS_MAX + 2)]
    for number, name in enumerate(names):
        assert await store.sessions.add_session(name, "token", b"digest", 3600.0 + number)
    left = [name for name in [*names, b"other"] if await store.sessions.session(name) is not None]
    assert left == [*names[2:], b"other"]


async def test_an_expired_session_is_none_and_the_next_sign_in_removes_it(store: Store) -> None:
    """Nobody else prunes them."""
    assert await store.sessions.add_session(b"old", "token", b"digest", -1.0)
    assert await store.sessions.session(b"old") is None
    assert await store.sessions.add_session(b"new", "token", b"digest", 3600.0)
    assert await store.sessions.end_session(b"old") == 0
    assert await store.sessions.end_session(b"new") == 1
