"""What the parts of this dialect share: the database and the clock. Each part serves one role's protocol."""

from __future__ import annotations

import apsw

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.database import Database, path_of
from holdfast.store.sqlite.liveness import Liveness
from holdfast.store.sqlite.verbs import VERBS


class Dialect:
    def __init__(self, url: str, environment: Environment, config: Config) -> None:
        self.url = url
        self._environment, self._config = environment, config
        self._database = Database(path_of(url), environment)
        self._clock = Clock(environment, shared=not self._database.in_memory)
        self._liveness = Liveness(None if self._database.in_memory else self._database.path)

    def _journal(
        self,
        connection: apsw.Connection,
        actor: str,
        verb: str,
        note: str,
        run_id: str | None = None,
        n: int | None = None,
    ) -> None:
        row = (self._clock.now(), actor, verb, run_id, n, note)
        connection.execute(VERBS.journal_add, row)
