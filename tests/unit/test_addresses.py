"""Addresses as people may see them."""

import pytest

from holdfast.addresses import has_raw_password, shown_address
from holdfast.environment import Environment
from holdfast.errors import StoreUnsupported
from holdfast.store import open_store


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:s3cret@db/x?sslmode=require", "postgresql://me:…@db/x?sslmode=require"),
        ("postgresql://me:s3cret@one,two:5433/db", "postgresql://me:…@one,two:5433/db"),
        ("postgresql://me:s3/cret@db/x", "postgresql://me:…@db/x"),
        ("postgresql://me:s3#cret@db/x", "postgresql://me:…@db/x"),
        ("postgresql://me:s3?cret@db/x", "postgresql://me:…@db/x"),
        ("postgresql://me:s3@cret@db/x", "postgresql://me:…@db/x"),
        ("postgresql://me:s3:cret@db/x", "postgresql://me:…@db/x"),
        ("postgresql://:s3cret@db/x", "postgresql://:…@db/x"),
        ("postgresql://db/x?user=me&password=s3cret&port=1", "postgresql://db/x?user=me&password=…&port=1"),
        ("postgresql://db/x?PassWord=s3cret", "postgresql://db/x?PassWord=…"),
        ("postgresql://db/x?pass%77ord=s3cret", "postgresql://db/x?pass%77ord=…"),
        ("postgresql://db/x?sslpassword=s3cret", "postgresql://db/x?sslpassword=…"),
        ("mysql://root:s3cret@db/x", "mysql://root:…@db/x"),
        ("redis://:s3cret@db", "redis://:…@db"),
        ("me:s3cret@db/x", "me:…@db/x"),
        ("host=db user=me password=s3cret dbname=x", "host=db user=me password=… dbname=x"),
        ("host=db password = 's3 cret\\' s3cret'", "host=db password=…"),
        ("https://hooks/x?api_key=s3cret", "https://hooks/x?api_key=…"),
    ],
)
def test_a_password_is_not_shown(address: str, shown: str) -> None:
    """It is hidden wherever it is in the address, and whatever characters it has."""
    assert shown_address(address) == shown


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///file.db",
        "sqlite:////var/lib/holdfast/file.db",
        "postgresql:///x?host=/tmp&port=5433",
        "postgresql://me@one,two:5433/db?target_session_attrs=any",
        "postgresql://[::1]:5432/db",
    ],
)
def test_nothing_else_is_changed(address: str) -> None:
    """An address without a password is shown as it is."""
    assert shown_address(address) == address
    assert not has_raw_password(address)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:s3/cret@db/x",
        "postgresql://me:s3#cret@db/x",
        "postgresql://me:s3?cret@db/x",
        "postgresql://me:12/3@db/x",
    ],
)
def test_a_password_that_must_be_encoded_is_named(address: str) -> None:
    """The error comes before a part of the password is taken for a host or a port, and shown."""
    with pytest.raises(StoreUnsupported, match="%2F") as refused:
        open_store(address, Environment())
    assert "s3" not in str(refused.value)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("address", ["mysql://root:s3cret@db/x", "root:s3cret@db", "sqlite://root:s3cret@"])
def test_an_address_that_cannot_be_used_is_shown_without_its_password(address: str) -> None:
    """The error names the address, without the password."""
    with pytest.raises(StoreUnsupported) as refused:
        open_store(address, Environment())
    assert "s3cret" not in str(refused.value)
