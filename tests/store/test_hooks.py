"""Hooks in the store."""

from __future__ import annotations

import pytest

from holdfast.desk.hooks import secrets_of
from holdfast.errors import Conflict, UnknownHook
from holdfast.model import NewHook
from holdfast.store.store import Store

HOOK = NewHook("acme//billing", "acme", "standard", b"first", "x-signature")


async def test_a_hook_has_two_secrets_while_it_is_rotated(store: Store) -> None:
    await store.hooks.add_hook(HOOK, "ann")
    row = await store.hooks.hook("acme//billing")
    assert row is not None
    now = await store.now()
    assert secrets_of(row, now) == [b"first"]
    await store.hooks.rotate_hook("acme//billing", b"second", 60.0, "ann")
    row = await store.hooks.hook("acme//billing")
    assert row is not None
    assert secrets_of(row, now) == [b"second", b"first"]
    assert secrets_of(row, now + 120) == [b"second"]
    assert "second" not in repr(row)


async def test_names_are_taken_once_and_belong_to_their_namespace(store: Store) -> None:
    await store.hooks.add_hook(HOOK, "ann")
    with pytest.raises(Conflict, match="there is a hook"):
        await store.hooks.add_hook(HOOK, "bob")
    await store.hooks.add_hook(HOOK._replace(name="billing", namespace="default"), "bob")
    assert [row.name for row in await store.hooks.hooks("acme", 10)] == ["acme//billing"]
    await store.hooks.remove_hook("acme//billing", "ann")
    assert await store.hooks.hooks("acme", 10) == []
    for act in (
        store.hooks.remove_hook("acme//billing", "ann"),
        store.hooks.rotate_hook("x", b"s", 1.0, "ann"),
    ):
        with pytest.raises(UnknownHook):
            await act
    verbs = [entry.verb for entry in await store.reads.journal(None, 10)]
    assert verbs == ["hook remove", "hook create", "hook create"]
