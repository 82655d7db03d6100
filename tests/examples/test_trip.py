"""Trip booking: three bookings, each made once, or none."""

import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from examples import trip
from examples.trip_service import BookingService
from holdfast import Holdfast
from holdfast.errors import RunCancelled, RunUndone
from tests.examples.conftest import ROOT, Ended, until

TRIP = f"{ROOT}/examples/trip.py:book_trip"


def kinds(service: BookingService) -> list[str]:
    return sorted(booking["kind"] for booking in service.bookings())


def cancelled(service: BookingService) -> set[str]:
    """Return what was booked and then cancelled, each once."""
    gone = [booking["kind"] for booking in service.cancellations()]
    assert len(gone) == len(set(gone))
    return set(gone)


async def test_three_bookings_make_a_trip(store_url: str, booking_service: BookingService) -> None:
    """The trip has the references that are in the service's ledger."""
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
    """The hotel's first reply is lost. The second request has the same key, and there is one hotel."""
    async with Holdfast(store_url) as hf:
        await (await hf.start(trip.book_trip, "Oslo")).result(timeout=60)
    assert kinds(booking_service) == ["car", "flight", "hotel"]
    requests = {each["kind"]: each["requests"] for each in booking_service.bookings()}
    assert requests == {"flight": 1, "hotel": 2, "car": 1}


async def test_a_trip_without_a_car_is_undone(store_url: str, booking_service: BookingService) -> None:
    """The run's error is the service's own message, nothing stays booked, and flight and hotel were cancelled once."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(trip.book_trip.using(id="venice"), "Venice")
        with pytest.raises(RunUndone, match="there are no cars in Venice"):
            await run.result(timeout=60)
        steps = {step.key: step for step in await run.steps()}
    assert booking_service.bookings() == []
    assert cancelled(booking_service) == {"flight", "hotel"}
    assert steps["book_car"].attempt == 1  # a final answer is not retried
    assert steps["undo:book_car"].n < steps["undo:book_flight"].n  # what was booked last is undone first


async def test_a_desk_that_booked_and_never_answers_is_cancelled_by_key(
    store_url: str, booking_service: BookingService
) -> None:
    """All replies are lost, so the step fails without a reference. The undo finds the booking by its key."""
    booking_service.hangs_up = {"flight"}
    async with Holdfast(store_url) as hf:
        run = await hf.start(trip.book_trip.using(id="lost"), "Oslo")
        with pytest.raises(RunUndone):
            await run.result(timeout=60)
    assert booking_service.bookings() == []
    assert cancelled(booking_service) == {"flight", "hotel"}


async def test_a_cancelled_trip_is_undone_newest_first(
    store_url: str, booking_service: BookingService
) -> None:
    """The run is cancelled while it books the car. The car is undone first, then what was booked before."""
    booking_service.hangs_up = {"car"}

    async def booked() -> bool:
        return "car" in kinds(booking_service)

    async with Holdfast(store_url) as hf:
        run = await hf.start(trip.book_trip.using(id="off"), "Oslo")
        await until(booked)
        await run.cancel("the traveller is ill")
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
    gone = [booking["kind"] for booking in booking_service.cancellations()]
    assert (gone[0], set(gone[1:]), len(gone)) == ("car", {"flight", "hotel"}, 3)
    assert booking_service.bookings() == []


def test_cancelling_twice_is_cancelling_once(booking_service: BookingService) -> None:
    """Cancelling by reference and by key, again and again, is one cancellation, and the key cannot be used any more."""
    reference, _, _ = booking_service.book("k", "car", "Oslo", "Ada")
    for _ in range(2):
        booking_service.cancel("", "car", reference)
        booking_service.cancel("k", "car", "")
    assert [booking["cancelled"] for booking in booking_service.cancellations()] == [1]


def test_a_booking_that_comes_after_its_cancellation_is_refused(booking_service: BookingService) -> None:
    """A request that was under way while its run was undone books nothing."""
    with urlopen(Request(f"{booking_service.url}/cars", None, {"Idempotency-Key": "k"}, method="DELETE")):
        pass
    late = Request(
        f"{booking_service.url}/cars", b'{"city": "Oslo", "traveller": "Ada"}', {"Idempotency-Key": "k"}
    )
    with pytest.raises(HTTPError, match="410"):
        urlopen(late)
    assert booking_service.bookings() == []


async def test_an_undone_trip_can_be_had_again(store_url: str, booking_service: BookingService) -> None:
    """Retrying a run that undid itself starts from the beginning, with new keys: all three are booked."""
    booking_service.no_cars_in = {"Oslo"}
    async with Holdfast(store_url) as hf:
        run = await hf.start(trip.book_trip.using(id="again"), "Oslo")
        with pytest.raises(RunUndone):
            await run.result(timeout=60)
        booking_service.no_cars_in = set()
        again = await run.retry()
        await again.result(timeout=60)
    assert again.id != run.id
    assert kinds(booking_service) == ["car", "flight", "hotel"]
    assert cancelled(booking_service) == {"flight", "hotel"}


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


def test_the_command_says_why_a_trip_was_undone(
    store_url: str, command: Callable[..., Ended], booking_service: BookingService
) -> None:
    """A run that undid itself gives exit code 1, with the error that made it do so."""
    ended = command("run", TRIP, "--input", '{"city": "Venice"}', "--store", store_url)
    assert ended.code == 1
    assert ended.shown["state"] == "undone"
    assert "there are no cars in Venice" in str(ended.shown["error"])
    assert booking_service.bookings() == []


def test_a_wrong_input_books_nothing(
    store_url: str, command: Callable[..., Ended], booking_service: BookingService
) -> None:
    """An input that does not fit is refused with the field's name and exit code 2, and nothing happened."""
    ended = command("run", TRIP, "--input", '{"city": 7}', "--store", store_url)
    assert ended.code == 2
    assert "city" in ended.errors + str(ended.shown)
    assert booking_service.bookings() == []


def test_the_example_brings_its_own_service(command: Callable[..., Ended]) -> None:
    """If no service is named, the example starts one beside the run, and stops it with the run."""
    ended = command("run", TRIP, "--store", "sqlite:///trip.db")
    assert ended.code == 0, ended.errors
    assert ended.shown["output"]["car"]["reference"].startswith("CA-")


def test_a_killed_booking_goes_on_and_books_nothing_twice(
    store_url: str,
    command: Callable[..., Ended],
    start_command: Callable[..., subprocess.Popen[str]],
    booking_service: BookingService,
) -> None:
    """kill -9 after the first booking. Started again with the same id, the run ends with three bookings."""
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


@pytest.mark.parametrize("cancellations", [0, 1])
def test_a_trip_that_is_killed_while_it_is_undone_goes_on_with_that(
    store_url: str,
    command: Callable[..., Ended],
    start_command: Callable[..., subprocess.Popen[str]],
    booking_service: BookingService,
    cancellations: int,
) -> None:
    """kill -9 before a cancellation, or after it and before it is recorded. The same command again cancels the rest,
    and nothing twice."""
    arguments = ("run", TRIP, "--id", "killed", "--store", store_url, "--input", '{"city": "Venice"}')
    booking_service.latency_s = 0.2

    def begun() -> bool:
        """True when the car was refused. Its undo comes first, and leaves a mark."""
        with closing(booking_service.open_ledger()) as rows:
            return bool(rows.execute("SELECT count(cancelled) FROM bookings").fetchone()[0])

    process = start_command(*arguments)
    while not begun() or len(booking_service.cancellations()) < cancellations:
        assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = booking_service.cancellations()

    ended = command(*arguments)
    assert (ended.code, ended.shown["state"]) == (1, "undone")
    assert booking_service.bookings() == []
    assert booking_service.cancellations()[: len(before)] == before
    assert cancelled(booking_service) == {"flight", "hotel"}
