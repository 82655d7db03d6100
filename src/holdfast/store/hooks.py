"""Hooks: where webhooks come in, by which scheme they are signed, and with which secrets."""

from __future__ import annotations

from holdfast.actor import entry
from holdfast.errors import Conflict, UnknownHook
from holdfast.model import HookRow, NewHook
from holdfast.store.database import Noun, Row, Session, look, transaction
from holdfast.store.verbs import Verb


class Hooks(Noun):
    @look
    async def hook(self, session: Session, name: str) -> HookRow | None:
        row = await session.row(Verb.hook, name)
        return None if row is None else hook_of(row)

    @look
    async def hooks(self, session: Session, namespace: str, limit: int) -> list[HookRow]:
        """Return the hooks of a namespace, by their names."""
        return [hook_of(row) for row in await session.rows(Verb.hooks, namespace, limit)]

    @transaction
    async def add_hook(self, session: Session, new: NewHook, actor: str) -> None:
        """Make a hook. Raise Conflict if there is one of this name."""
        columns = (new.name, new.namespace, new.scheme, new.secret, new.header, actor)
        if not await session.run(Verb.add_hook, *columns):
            raise Conflict(f"there is a hook {new.name!r} already: rotate its secret, or remove it first")
        await _journal(session, actor, "hook create", new.name)

    @transaction
    async def rotate_hook(
        self, session: Session, name: str, secret: bytes, grace_s: float, actor: str
    ) -> None:
        """Give a hook another secret. The one that it has is good for `grace_s` more."""
        if not await session.run(Verb.rotate_hook, name, secret, grace_s):
            raise UnknownHook.of(name)
        await _journal(session, actor, "hook rotate", name)

    @transaction
    async def remove_hook(self, session: Session, name: str, actor: str) -> None:
        if not await session.run(Verb.remove_hook, name):
            raise UnknownHook.of(name)
        await _journal(session, actor, "hook remove", name)


async def _journal(session: Session, actor: str, verb: str, name: str) -> None:
    await session.each(Verb.journal_add, [entry(actor, verb, None, None, name)])


def hook_of(row: Row) -> HookRow:
    values = dict(zip(HookRow.__struct_fields__, row, strict=True))
    values["secret"] = bytes(values["secret"])
    old = values["old_secret"]
    values["old_secret"] = None if old is None else bytes(old)
    return HookRow(**values)
