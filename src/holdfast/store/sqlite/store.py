"""The State Store on SQLite, through apsw.

One file, one host, any number of processes. The parts stand in files of their own, one per role that asks: writes,
scheduling, working, gating, supervising, quarantining, alerting, learning, retention, pools, workflows, nodes, reading, operating; each
method
is one transaction, or one read.
"""

from __future__ import annotations

from holdfast.store.sqlite import schema
from holdfast.store.sqlite.alerting import Alerting
from holdfast.store.sqlite.gating import Gating
from holdfast.store.sqlite.learning import Learning
from holdfast.store.sqlite.nodes import Nodes
from holdfast.store.sqlite.operating import Operating
from holdfast.store.sqlite.pools import Pools
from holdfast.store.sqlite.quarantining import Quarantining
from holdfast.store.sqlite.reading import Reading
from holdfast.store.sqlite.retention import Retention
from holdfast.store.sqlite.scheduling import Scheduling
from holdfast.store.sqlite.supervising import Supervising
from holdfast.store.sqlite.working import Working
from holdfast.store.sqlite.writes import Writes


class SqliteStore(
    Writes,
    Scheduling,
    Working,
    Gating,
    Supervising,
    Quarantining,
    Alerting,
    Learning,
    Retention,
    Pools,
    Nodes,
    Reading,
    Operating,
):
    async def open(self) -> None:
        what = self._database.what
        await self._database.open(lambda connection: schema.check(connection, what))
        try:
            async with self._database.reading() as connection:
                new = schema.is_empty(connection)
            if new:
                await self._migrate()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._database.close()
        self._liveness.let_all_go()

    async def migrate(self) -> tuple[int, int]:
        if self._database.is_open:
            return await self._migrate()
        what = self._database.what
        await self._database.open(lambda connection: schema.demand_ours(connection, what))
        try:
            return await self._migrate()
        finally:
            await self._database.close()

    async def _migrate(self) -> tuple[int, int]:
        what, now = self._database.what, self._environment.now()
        return await self._database.exclusively(lambda connection: schema.migrate(connection, what, now))
