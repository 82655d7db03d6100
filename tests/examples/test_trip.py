"""Trip booking: three bookings, each made once, or a clean failure."""

import signal
import subprocess
from collections.abc import Callable

import pytest

from examples import trip
from examples.trip_service import BookingService
from holdfast import Holdfast, RunFailed
from tests.examples.conftest import ROOT, Ended

TRIP = f"{ROOT}/examples/trip.py:book_trip"


def kinds(service: BookingService) -> list[str]:
    return sorted(booking["kind"] for booking in service.bookings())


async def test_three_bookings_make_a_trip(store_url: str, booking_service: BookingService) -> None:
    """The trip holds the references that the service's ledger holds."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(trip.book_trip.using(id="oslo"), "Oslo", "Grace")
        booked = await run.result(timeout=60)
    ledger = {each["kind"]: each for each in booking_service.bookings()}
    assert (booked.traveller, booked.city) == ("Grace", "Oslo")
    for booking in (booked.flight, booked.hotel, booked.car):
        assert ledger[booking.kind]["reference"] == booking.reference
        assert ledger[booking.kind]["traveller"] == "Grace"


async def test_a_lost_reply_is_retried_and_books_once(
    store_url: str, booking_service: BookingService
) -> None:
    """The hotel's first reply is lost: the second request carries the same key, and there is one hotel."""
    async with Holdfast(store_url) as hf:
        await (await hf.start(trip.book_trip, "Oslo")).result(timeout=60)
    assert kinds(booking_service) == ["car", "flight", "hotel"]
    requests = {each["kind"]: each["requests"] for each in booking_service.bookings()}
    assert requests == {"flight": 1, "hotel": 2, "car": 1}


async def test_a_trip_without_a_car_fails_cleanly(store_url: str, booking_service: BookingService) -> None:
    """The service's own words are the run's error, and no retry was tried on a final answer."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(trip.book_trip.using(id="venice"), "Venice")
        with pytest.raises(RunFailed, match="there are no cars in Venice"):
            await run.result(timeout=60)
    assert kinds(booking_service) == ["flight", "hotel"]


def test_the_command_prints_one_object(
    store_url: str, command: Callable[..., Ended], booking_service: BookingService
) -> None:
    """`holdfast run … --json` prints id, state, output and steps, and exits with 0."""
    ended = command("run", TRIP, "--input", '{"city": "Oslo"}', "--id", "t-1", "--store", store_url)
    assert ended.code == 0
    assert (ended.shown["id"], ended.shown["state"]) == ("t-1", "succeeded")
    assert ended.shown["output"]["flight"]["kind"] == "flight"
    assert len(ended.shown["steps"]) == 3
    assert len(booking_service.bookings()) == 3


def test_the_command_says_why_a_trip_failed(
    store_url: str, command: Callable[..., Ended], booking_service: BookingService
) -> None:
    """A failed run is exit code 1, with the error in the object."""
    ended = command("run", TRIP, "--input", '{"city": "Venice"}', "--store", store_url)
    assert ended.code == 1
    assert ended.shown["state"] == "failed"
    assert "there are no cars in Venice" in str(ended.shown["error"])
    assert kinds(booking_service) == ["flight", "hotel"]


def test_a_wrong_input_books_nothing(
    store_url: str, command: Callable[..., Ended], booking_service: BookingService
) -> None:
    """An input that does not fit is refused with the field's name, exit code 2, and nothing happened."""
    ended = command("run", TRIP, "--input", '{"city": 7}', "--store", store_url)
    assert ended.code == 2
    assert "city" in ended.errors + str(ended.shown)
    assert booking_service.bookings() == []


def test_the_example_brings_its_own_service(command: Callable[..., Ended]) -> None:
    """With no service named, one is started beside the run, and ends with it."""
    ended = command("run", TRIP, "--store", "sqlite:///trip.db")
    assert ended.code == 0, ended.errors
    assert ended.shown["output"]["car"]["reference"].startswith("CA-")


def test_a_killed_booking_goes_on_and_books_nothing_twice(
    store_url: str,
    command: Callable[..., Ended],
    start_command: Callable[..., subprocess.Popen[str]],
    booking_service: BookingService,
) -> None:
    """kill -9 after the first booking; started again with the same id, the run ends with three bookings."""
    arguments = ("run", TRIP, "--id", "killed", "--store", store_url)
    booking_service.latency_s = 0.3
    process = start_command(*arguments)
    while not booking_service.bookings():
        assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGKILL)
    process.wait()
    ended = command(*arguments)
    assert (ended.code, ended.shown["state"]) == (0, "succeeded")
    assert kinds(booking_service) == ["car", "flight", "hotel"]
