"""The State Store: all its nouns on one database. A noun has the methods about one thing, such as gates or alerts."""

from __future__ import annotations

from holdfast.store.acts import Acts
from holdfast.store.agents import Agents
from holdfast.store.alerts import Alerts
from holdfast.store.batch import Batches
from holdfast.store.database import Database
from holdfast.store.durations import Durations
from holdfast.store.gates import OperatorGates
from holdfast.store.leader import Leader
from holdfast.store.nodes import Nodes
from holdfast.store.operators import Operators
from holdfast.store.quarantine import Quarantine
from holdfast.store.reads import Reads
from holdfast.store.remotes import Remotes
from holdfast.store.retention import Retention
from holdfast.store.schedulers import Schedulers
from holdfast.store.schedules import Schedules
from holdfast.store.tokens import Tokens
from holdfast.store.twins import Twins
from holdfast.store.workflows import Workflows


class Store:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.acts = Acts(database)
        self.agents = Agents(database)
        self.alerts = Alerts(database)
        self.batches = Batches(database)
        self.durations = Durations(database)
        self.gates = OperatorGates(database)
        self.leader = Leader(database)
        self.nodes = Nodes(database)
        self.operators = Operators(database)
        self.quarantine = Quarantine(database)
        self.reads = Reads(database)
        self.remotes = Remotes(database)
        self.retention = Retention(database)
        self.schedulers = Schedulers(database)
        self.schedules = Schedules(database)
        self.tokens = Tokens(database)
        self.twins = Twins(database)
        self.workflows = Workflows(database)

    @property
    def url(self) -> str:
        return self.database.url

    @property
    def schema(self) -> int:
        """The version of the schema that this version of Holdfast uses."""
        return self.database.schema

    async def open(self) -> None:
        """Connect and check the version of the schema. A new database is migrated automatically."""
        await self.database.open()

    async def close(self) -> None:
        await self.database.close()

    async def migrate(self) -> tuple[int, int]:
        """Bring the schema to this version. Return the version before and the version now."""
        return await self.database.migrate()

    async def now(self) -> float:
        """Return the store's time."""
        return await self.database.now()
