"""A URL may name several hosts: each is tried by itself."""

import pytest

from holdfast.store.postgres.connections import addresses


@pytest.mark.parametrize(
    ("url", "each"),
    [
        ("postgresql://u@one/db", ["postgresql://u@one/db"]),
        (
            "postgresql://u:p@one,two:5433/db?sslmode=require",
            ["postgresql://u:p@one/db?sslmode=require", "postgresql://u:p@two:5433/db?sslmode=require"],
        ),
        ("postgresql://one,two/db", ["postgresql://one/db", "postgresql://two/db"]),
        (
            "postgresql://u@/db?host=one,two&port=1,2&sslmode=require",
            [
                "postgresql://u@/db?host=one&port=1&sslmode=require",
                "postgresql://u@/db?host=two&port=2&sslmode=require",
            ],
        ),
        ("postgresql://u@/db?host=/tmp&port=5433", ["postgresql://u@/db?host=/tmp&port=5433"]),
    ],
)
def test_each_host_has_an_address_of_its_own(url: str, each: list[str]) -> None:
    """Everything but the host and its port stays as it was."""
    assert addresses(url) == each
