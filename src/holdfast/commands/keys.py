"""`keys`: what payloads are sealed with. A key is shown once, when it is made, and no store has it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import click

from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, demand_file
from holdfast.environment import Environment
from holdfast.errors import InvalidSettings, StoreSealed
from holdfast.keyring import (
    KEY_BYTES,
    KEYS,
    KEYS_FILE,
    DigestKey,
    Keyring,
    keys_here,
    sealed_by,
    sealing,
    written_key,
)
from holdfast.store import open_store
from holdfast.store.seals import TABLES, Seals, Table, Values, reseal, reseal_all
from holdfast.store.store import Store
from holdfast.terminal import output, wording
from holdfast.terminal.meter import Meter

ACTS = ("list", "make", "reseal")
BATCH = 500
"""How many rows one transaction changes. Runs that go on wait for it, so it is short."""


@command(needs_database=True, namespace="none")
@click.argument("act", type=click.Choice(ACTS), default="list", metavar="[list|make|reseal]")
@click.option("--id", "key_id", metavar="ID", help="Name the new key. [default: k and today's date]")
@click.option("--dry-run", is_flag=True, help="Count what would be sealed anew, and change nothing.")
def keys(act: str, key_id: str | None, dry_run: bool, store: str, as_json: bool) -> int:
    """Make a key, see which keys a store needs, and seal everything with the newest.

    \b
    export HOLDFAST_KEYS="$(holdfast keys make)"
    holdfast keys reseal

    As soon as a process with keys has opened a store, the payloads in it are sealed: inputs, results, checkpoints,
    signals, published values and logs. HOLDFAST_KEYS has the keys, as ID:BASE64 separated by commas; HOLDFAST_KEYS_FILE
    names a file with them. The first key seals, and all of them open. To change a key, put a new one in front
    everywhere, run `holdfast keys reseal`, and then take the old one away. `list` has the exit code 1 if something is
    sealed with a key that is not here.
    """
    if key_id is not None and act != "make":
        raise click.UsageError("--id names a new key: it goes with make")
    if dry_run and act != "reseal":
        raise click.UsageError("--dry-run goes with reseal")
    if act == "make":
        key = written_key(key_id or time.strftime("k%Y%m%d", time.gmtime()), Environment().secret(KEY_BYTES))
        if as_json:
            output.print_json({"key": key})
        else:
            output.say(key)
        return DONE
    if act == "reseal":
        return run_quickly(_reseal(store, as_json=as_json, dry_run=dry_run))
    return run_quickly(_list(store, as_json=as_json))


async def _list(url: str, *, as_json: bool) -> int:
    here = keys_here(os.environ, Environment().secret)
    ids = [] if here is None else here.ids
    async with _opened(url) as there:
        uses = await _uses(there.seals)
    missing = sorted(uses.keys() - {"", *ids})
    if as_json:
        output.print_json(
            {
                "here": ids,
                "missing": missing,
                "rows": {(key or None) or "plain": n for key, n in uses.items()},
            }
        )
    elif not ids and not missing:
        output.say(f"nothing is sealed: `holdfast keys make` makes a key for {KEYS}")
    else:
        for number, key in enumerate(ids):
            does = "seals and opens" if number == 0 else "opens"
            output.say(f"{key}  {does}, {wording.counted(uses.get(key, 0), 'row')}")
        for key in missing:
            output.say(f"{key}  is not in {KEYS} or {KEYS_FILE}, {wording.counted(uses[key], 'row')}")
        if uses.get(""):
            output.say(f"{wording.counted(uses[''], 'row')} not sealed: `holdfast keys reseal` seals them")
    return ENDED_OTHERWISE if missing else DONE


async def _uses(seals: Seals) -> dict[str, int]:
    """Return how many rows are sealed with each key. Those that are not sealed are counted under the empty one."""
    uses: dict[str, int] = {}

    def count(table: Table, values: Values) -> Values:
        payloads = [raw for place, raw in enumerate(values) if raw is not None and place not in table.digests]
        for key in {key for raw in payloads for key in sealing(raw) or {""}}:
            uses[key] = uses.get(key, 0) + 1
        return values

    for table in TABLES:
        await reseal(seals, table, count, batch=BATCH, seen=lambda read, changed: None)
    return uses


async def _reseal(url: str, *, as_json: bool, dry_run: bool) -> int:
    here = keys_here(os.environ, Environment().secret)
    if here is None:
        raise InvalidSettings(
            f"there is no key to seal with: set {KEYS}, or make one with `holdfast keys make`"
        )
    unknown = set[str]()
    async with _opened(url) as there:
        digests = await digest_key(there.seals, here, dry_run=dry_run)
        if not dry_run:
            await there.seals.forget_items()
        with Meter(as_json) as meter:
            done = await _walk(there.seals, anew(here, digests, unknown), meter, dry_run=dry_run)
    if as_json:
        output.print_json(
            {"dry_run": dry_run, "key": here.first.id, "rows": done, "missing": sorted(unknown)}
        )
        return ENDED_OTHERWISE if unknown else DONE
    would = "would be sealed" if dry_run else "sealed"
    output.say(f"{wording.counted(sum(done.values()), 'row')} {would} with {here.first.id}")
    for key in sorted(unknown):
        output.say(f"what is sealed with {key} was left alone: {KEYS} does not have it")
    return ENDED_OTHERWISE if unknown else DONE


def anew(here: Keyring, digests: DigestKey, unknown: set[str]) -> Callable[[Table, Values], Values]:
    """Return what gives a row's values the newest key. The ids of keys that are missing are added to `unknown`."""

    def change(table: Table, values: Values) -> Values:
        changed = list(values)
        for place, raw in enumerate(values):
            if raw is None:
                continue
            if place in table.digests:
                changed[place] = digests.seal(digests.open(raw))
                continue
            key, missing = sealed_by(raw), sealing(raw).difference(here.ids)
            if key == here.first.id:
                continue
            plain = here.open(raw)
            if key is not None and plain is raw:
                missing.add(key)  # somebody has changed it, so its key does not open it
            unknown.update(missing)
            if not missing:
                changed[place] = here.seal(plain)
        return tuple(changed)

    return change


async def _walk(
    seals: Seals, change: Callable[[Table, Values], Values], meter: Meter, *, dry_run: bool
) -> dict[str, int]:
    """Seal all tables anew. Return how many rows of each were changed, or would be."""
    counted = dict.fromkeys((table.name for table in TABLES), 0)

    def looked(table: Table, values: Values) -> Values:
        counted[table.name] += change(table, values) != values
        return values

    changed = await reseal_all(
        seals,
        looked if dry_run else change,
        batch=BATCH,
        seen=lambda table, read, changed: meter.show(f"{table.name}: {read:,} rows read, {changed:,} sealed"),
    )
    return counted if dry_run else changed


async def digest_key(seals: Seals, here: Keyring, *, dry_run: bool) -> DigestKey:
    """Return the key that hides digests, after sealing it with the newest key."""
    sealed = await seals.digest_key()
    if sealed is None:
        sealed = here.seal(Environment().secret(KEY_BYTES))
        if not dry_run:
            await seals.add_digest_key(sealed)
            sealed = await seals.digest_key() or sealed
    secret = here.open(sealed)
    if (key := sealed_by(secret)) is not None:
        raise StoreSealed(
            f"this store is sealed with the key {key!r}, which {KEYS} does not have: add it behind the first one"
        )
    if sealed_by(sealed) != here.first.id and not dry_run:
        await seals.reseal_digest_key(sealed, here.seal(secret))
    return DigestKey(secret)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    """Open the store as it is: rows stay sealed."""
    demand_file(url)
    store = open_store(url, Environment())
    store.keys = None
    await store.open()
    try:
        yield store
    finally:
        await store.close()
