"""What holds for all processes on the store."""

from __future__ import annotations

from holdfast.store.database import Noun, Session, look, statement
from holdfast.store.verbs import Verb

PUBLIC_URL = "public_url"
"""Where other systems and people reach a server of this store."""


class Settings(Noun):
    @look
    async def setting(self, session: Session, name: str) -> str | None:
        value: str | None = await session.value(Verb.setting, name)
        return value

    @statement
    async def set_setting(self, session: Session, name: str, value: str) -> int:
        """Set this value for all processes. Return 0 if it was set before."""
        return await session.run(Verb.set_setting, name, value)
