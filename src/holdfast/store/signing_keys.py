"""Keys that sign links. They are in the store, so any server checks what another process signed."""

from __future__ import annotations

from holdfast.store.database import Noun, Session, look, statement
from holdfast.store.verbs import Verb

FIRST = "1"
"""The id of the first key. It is always the same, so that only one can be made."""


class SigningKeys(Noun):
    async def certain_keys(self, secret: bytes) -> dict[str, bytes]:
        """Return the keys that are good, the one that signs first. If there is none, `secret` becomes the first one."""
        found = await self.signing_keys()
        if not found:
            await self.add_first_signing_key(secret)
            found = await self.signing_keys()
        return found

    @look
    async def signing_keys(self, session: Session) -> dict[str, bytes]:
        return {row[0]: bytes(row[1]) for row in await session.rows(Verb.signing_keys)}

    @statement
    async def add_first_signing_key(self, session: Session, secret: bytes) -> int:
        return await session.run(Verb.add_first_signing_key, FIRST, secret)
