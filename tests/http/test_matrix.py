"""Everybody gets what their role and namespace allow, and nothing else: every route, every role, every target."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.access import MAY, Role
from holdfast.http.routes import ROUTES
from holdfast.http.table import TABLE
from tests.http.conftest import asking
from tests.http.matrix import CANARY, FILE, OTHER, OWN, TARGETS, UNKNOWN, Asker, Cell, Matrix, as_text


@pytest.fixture
async def matrix() -> AsyncIterator[Matrix]:
    async with asking("sqlite://:memory:", namespace="*") as asked:
        yield Matrix(asked)


async def _cells(matrix: Matrix, who: list[Asker]) -> list[Cell]:
    return [await matrix.cell(route, one, target) for route in TABLE for one in who for target in TARGETS]


async def test_every_cell_is_as_the_file_says_and_nothing_leaks(matrix: Matrix) -> None:
    """The cells stand in matrix.txt. What is in another namespace is answered in the same bytes as what does not exist,
    its payloads are in no answer, and nobody without that namespace changes it."""
    who = await matrix.prepare()
    apart = [one for one in who if not one.has_all]
    before = await matrix.theirs()
    cells = await _cells(matrix, apart)
    assert await matrix.theirs() == before, "somebody changed what is in another namespace"
    by_target = {(cell.route, cell.asker, cell.target): cell for cell in cells}
    for (route, asker, target), cell in by_target.items():
        assert CANARY not in cell.shown, (route, asker, target)
        if target == OTHER and not route.endswith("/metrics"):
            unknown = by_target[route, asker, UNKNOWN]
            assert (cell.status, cell.shown) == (unknown.status, unknown.shown), (route, asker)
    powerful = [one for one in who if one.has_all]
    everything = await _cells(matrix, powerful)
    ordered = [
        cell
        for route in TABLE
        for cell in [*cells, *everything]
        if cell.route == f"{route.verb} {route.path}"
    ]
    assert as_text(ordered) == FILE.read_text(), (
        "run `python -m tests.http.matrix --write`, and read what changed"
    )
    print(f"{len(ordered):,} cells, 0 leaks")


async def test_the_same_id_in_another_namespace_is_another_run(matrix: Matrix) -> None:
    """A start, alone or in a batch, neither finds nor disturbs the run that has this id elsewhere."""
    who = await matrix.prepare()
    before = await matrix.theirs()
    starter = next(one for one in who if one.name == "starter")
    batch = next(route for route in ROUTES if route.path == "/v1/runs/batch")
    cell = await matrix.cell(batch, starter, OWN)
    assert b'"status":201' in cell.body
    assert b'"new":true' in cell.body
    assert await matrix.theirs() == before


def test_every_route_names_its_act() -> None:
    """A row without an act is open to everybody. There are nine. Five show nothing about the store; a hook is opened by what
    its sender signs, the page of an ask by the link that was sent to a person, and a callback by its address."""
    open_to_all = {route.path for route in TABLE if route.act is None}
    assert open_to_all == {
        "/healthz", "/readyz", "/v1/openapi.json", "/signin", "/static/{file}", "/v1/in/{hook}", "/a/{token}",
        "/v1/callbacks/{token}", "/v1/callbacks/{token}/extend",
    }  # fmt: skip
    assert all(MAY[route.act] for route in TABLE if route.act is not None)


def test_the_matrix_has_every_role() -> None:
    """A new role gets its cells."""
    text = FILE.read_text()
    assert all(f"  {role} " in text for role in Role)
