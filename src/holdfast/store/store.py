"""The State Store: all its nouns on one database. A noun has the methods about one thing, such as gates or alerts."""

from __future__ import annotations

from holdfast.codec.secret import enter_unsealed, leave_unsealed
from holdfast.keyring import Keyring
from holdfast.store.acts import Acts
from holdfast.store.agents import Agents
from holdfast.store.alerts import Alerts
from holdfast.store.asks import Asks
from holdfast.store.batch import Batches
from holdfast.store.callbacks import Callbacks
from holdfast.store.database import Database
from holdfast.store.durations import Durations
from holdfast.store.events import Events
from holdfast.store.gates import OperatorGates
from holdfast.store.gathers import Gathers
from holdfast.store.hooks import Hooks
from holdfast.store.leader import Leader
from holdfast.store.limits import Limits
from holdfast.store.nodes import Nodes
from holdfast.store.occasions import Occasions
from holdfast.store.operators import Operators
from holdfast.store.overview import Overviews
from holdfast.store.quarantine import Quarantine
from holdfast.store.queues import Queues
from holdfast.store.reads import Reads
from holdfast.store.remotes import Remotes
from holdfast.store.retention import Retention
from holdfast.store.schedulers import Schedulers
from holdfast.store.schedules import Schedules
from holdfast.store.seals import Seals
from holdfast.store.sessions import Sessions
from holdfast.store.settings import Settings
from holdfast.store.signing_keys import SigningKeys
from holdfast.store.tokens import Tokens
from holdfast.store.twins import Twins
from holdfast.store.views import Views
from holdfast.store.workflows import Workflows


class Store:
    def __init__(self, database: Database, keys: Keyring | None = None) -> None:
        self.database = database
        self.keys = keys
        self.acts = Acts(database)
        self.agents = Agents(database)
        self.alerts = Alerts(database)
        self.asks = Asks(database)
        self.batches = Batches(database)
        self.callbacks = Callbacks(database)
        self.durations = Durations(database)
        self.events = Events(database)
        self.gates = OperatorGates(database)
        self.gathers = Gathers(database)
        self.hooks = Hooks(database)
        self.leader = Leader(database)
        self.limits = Limits(database)
        self.nodes = Nodes(database)
        self.occasions = Occasions(database)
        self.operators = Operators(database)
        self.overview = Overviews(database)
        self.quarantine = Quarantine(database)
        self.queues = Queues(database)
        self.reads = Reads(database)
        self.remotes = Remotes(database)
        self.retention = Retention(database)
        self.schedulers = Schedulers(database)
        self.schedules = Schedules(database)
        self.sessions = Sessions(database)
        self.seals = Seals(database)
        self.settings = Settings(database)
        self.signing_keys = SigningKeys(database)
        self.tokens = Tokens(database)
        self.twins = Twins(database)
        self.views = Views(database)
        self.workflows = Workflows(database)

    @property
    def url(self) -> str:
        return self.database.url

    @property
    def schema(self) -> int:
        """The version of the schema that this version of Holdfast uses."""
        return self.database.schema

    async def open(self) -> None:
        """Connect and check the version of the schema and the keys. A new database is migrated automatically."""
        await self.database.open()
        try:
            if self.keys is None and self.database.environment.is_real:
                enter_unsealed(self.database.url)
            if self.keys is not None or await self.seals.digest_key() is not None:
                from holdfast.store.sealed import fit  # noqa: PLC0415  few stores are sealed

                await fit(self, self.keys)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        leave_unsealed(self.database.url)
        await self.database.close()

    async def migrate(self) -> tuple[int, int]:
        """Bring the schema to this version. Return the version before and the version now."""
        return await self.database.migrate()

    async def now(self) -> float:
        """Return the store's time."""
        return await self.database.now()
