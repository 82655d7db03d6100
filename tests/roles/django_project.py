"""A Django project in one file, with an order that starts a run. Its argument is the database that both use."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import django
from django.conf import settings

sys.path.insert(0, str(Path(__file__).parents[2]))
address = urlsplit(sys.argv[1])
host = parse_qs(address.query).get("host", [address.hostname or ""])[0]
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": address.path.lstrip("/"),
            "USER": unquote(address.username or ""),
            "PASSWORD": unquote(address.password or ""),
            "HOST": host,
            "PORT": str(address.port or ""),
        }
    },
    INSTALLED_APPS=[],
)
django.setup()

from django.db import connection, transaction  # noqa: E402  must come after the settings

from holdfast import Holdfast  # noqa: E402  as above
from holdfast.errors import NoTransaction, StoreUnsupported  # noqa: E402  as above
from tests.roles import flows  # noqa: E402  as above


def start(run_id: str) -> None:
    hf.wait(hf.within(connection).start(flows.chain.using(id=run_id), 2))


def refused(kind: type[Exception], call: Callable[[], object]) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


with Holdfast(sys.argv[1]) as hf:
    said = refused(NoTransaction, lambda: start("outside"))
    assert "transaction.atomic()" in said, said
    said = refused(StoreUnsupported, lambda: hf.within(transaction.atomic()))
    assert "django.db.connection" in said, said
    with transaction.atomic():
        start("kept")
        with suppress(ZeroDivisionError), transaction.atomic():
            start("lost with its savepoint")
            raise ZeroDivisionError
    with suppress(ZeroDivisionError), transaction.atomic():
        start("lost")
        raise ZeroDivisionError
    hf.wait(hf.run("kept").result(60))
    for info in hf.wait(hf.runs()):
        print(info.id, info.state)
