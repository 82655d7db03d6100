"""The State Store on SQLite, through apsw.

One file, one host, any number of processes. The parts stand in files of their own, one per role that asks: writes,
scheduling, working, gating, supervising, quarantining, alerting, learning, retention, pools, workflows, nodes, reading, operating; each
method
is one transaction, or one read.
"""

from __future__ import annotations

from holdfast.errors import StoreFull
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.agents import Working
from holdfast.store.sqlite.alerts import Alerting
from holdfast.store.sqlite.batch import Writes
from holdfast.store.sqlite.durations import Learning
from holdfast.store.sqlite.gates import Gating
from holdfast.store.sqlite.leader import Supervising
from holdfast.store.sqlite.nodes import Nodes
from holdfast.store.sqlite.operators import Operating
from holdfast.store.sqlite.pools import Pools
from holdfast.store.sqlite.quarantine import Quarantining
from holdfast.store.sqlite.reads import Reading
from holdfast.store.sqlite.retention import Retention
from holdfast.store.sqlite.schedulers import Scheduling


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
            await self._set_clock()
        except BaseException:
            await self.close()
            raise

    async def _set_clock(self) -> None:
        async with self._database.reading() as connection:
            right = self._clock.is_right(connection)
        if not right:
            try:
                async with self._database.transaction() as connection:
                    if not self._clock.is_right(connection):  # another process was first
                        self._clock.anchor(connection)
            except StoreFull:  # read-only: good enough for a look
                self._clock.anchor(None)
        self._database.on_changed = self._clock.learn

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
        what, now = self._database.what, self._clock.now()
        return await self._database.exclusively(lambda connection: schema.migrate(connection, what, now))
