"""Sessions: browsers that have signed in with a token. What their cookies say is in no row, only digests of it."""

from __future__ import annotations

from holdfast.model import SessionRow
from holdfast.store.database import Noun, Session, look, statement, transaction
from holdfast.store.verbs import Verb

SWEPT = 100
"""How many old sessions one sign-in removes at most."""
SESSIONS_MAX = 50
"""How many browsers may be signed in with one token. The next sign-in ends the oldest session."""


class Sessions(Noun):
    @look
    async def session(self, session: Session, digest: bytes) -> SessionRow | None:
        """Return a session that has not expired."""
        row = await session.row(Verb.session, digest)
        return None if row is None else SessionRow(*row)

    @transaction
    async def add_session(
        self, session: Session, digest: bytes, token: str, token_digest: bytes, lasts_s: float
    ) -> bool:
        """Add a session. Remove some that have expired, and the oldest ones of the token if it has too many. Return False if
        its digest is taken, which chance does not do."""
        await session.run(Verb.sweep_sessions, SWEPT)
        await session.run(Verb.end_oldest_sessions, token, SESSIONS_MAX - 1)
        return bool(await session.run(Verb.add_session, digest, token, token_digest, lasts_s))

    @statement
    async def end_session(self, session: Session, digest: bytes) -> int:
        """End a session for good. Return 0 if it had ended."""
        return await session.run(Verb.end_session, digest)
