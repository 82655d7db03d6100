"""Views in the store: each token has its own, and they go with it."""

from __future__ import annotations

from holdfast.model import NewToken
from holdfast.store.store import Store
from holdfast.store.views import View

FAILED, LATE = View("bad ones", "state=failed"), View("late", "error=503&since=24h")


async def test_each_holder_has_views_of_its_own_in_each_namespace(store: Store) -> None:
    """One of the same name is replaced. They are listed by name."""
    assert await store.views.save_view("one", "default", LATE, 9)
    assert await store.views.save_view("one", "default", View("bad ones", ""), 9)
    assert await store.views.save_view("one", "default", FAILED, 9)
    assert await store.views.save_view("", "default", LATE, 9)
    assert await store.views.save_view("one", "acme", LATE, 9)
    assert await store.views.views("one", "default") == [FAILED, LATE]
    assert await store.views.views("", "default") == await store.views.views("one", "acme") == [LATE]
    assert await store.views.views("two", "default") == []
    assert await store.views.remove_view("two", "default", "late") == 0
    assert await store.views.remove_view("one", "default", "late") == 1
    assert await store.views.views("one", "default") == [FAILED]
    assert await store.views.views("one", "acme") == [LATE]


async def test_there_are_so_many_and_no_more(store: Store) -> None:
    """One that is there may still be changed."""
    for n in range(3):
        assert await store.views.save_view("one", "default", View(f"v{n}", ""), 3)
    assert not await store.views.save_view("one", "default", View("v3", ""), 3)
    assert await store.views.save_view("one", "default", View("v2", "state=failed"), 3)
    assert await store.views.save_view("two", "default", View("v3", ""), 3)
    assert len(await store.views.views("one", "default")) == 3


async def test_views_go_with_their_token(store: Store) -> None:
    """At once if it is revoked; with the next view that anybody saves if it has expired. Others stay."""
    for name, lasts_s in (("good", 600.0), ("bad", 600.0), ("old", -1.0)):
        await store.tokens.add_token(
            NewToken(name, "ci", "viewer", '["default"]', "[]", True, name.encode(), lasts_s), "ann"
        )
    for holder in ("good", "bad", "", "https://login.example#42"):
        assert await store.views.save_view(holder, "default", FAILED, 9)
    assert await store.tokens.revoke_token("bad", "ann")
    assert await store.views.views("bad", "default") == []
    assert await store.views.save_view("old", "default", FAILED, 9)
    assert await store.views.save_view("good", "default", LATE, 9)
    assert await store.views.views("old", "default") == []
    assert await store.views.views("good", "default") == [FAILED, LATE]
    for holder in ("", "https://login.example#42"):
        assert await store.views.views(holder, "default") == [FAILED]
