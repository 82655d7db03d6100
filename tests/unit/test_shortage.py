"""Who gets what a limit has left, if several queues share it and want more than that together."""

from __future__ import annotations

from collections import Counter

from holdfast.store.shortage import LIMITS_MAX, Shortage, Wish, too_little

ACME, BOLT, COIL = (1, 1), (1, 2), (1, 3)
API = 7


def wish(
    place: tuple[int, int], number: int = 100, *, weight: int = 1, room: int = 100, cost: int = 1
) -> Wish:
    return Wish(place, weight, number, room, [(API, cost)])


def served(shortage: Shortage, wishes: list[Wish], left: int, times: int) -> Counter[tuple[int, int]]:
    """Return how many each had, if the limit has so much left at each of these claims."""
    had: Counter[tuple[int, int]] = Counter()
    for _ in range(times):
        numbers, by = shortage.deal(wishes, {API: left})
        for at, number in enumerate(numbers):
            had[wishes[at].place] += number
        for limit, those in by.items():
            shortage.add(limit, [(wishes[at].place, wishes[at].weight, numbers[at]) for at in those])
    return had


def test_there_is_too_little_only_if_several_want_more_than_is_left() -> None:
    assert too_little([wish(ACME, 3), wish(BOLT, 2)], {API: 4}) == {API: 4}
    assert too_little([wish(ACME, 3), wish(BOLT, 2)], {API: -1}) == {API: 0}
    assert too_little([wish(ACME, 3), wish(BOLT, 1)], {API: 4}) == {}
    assert too_little([wish(ACME, 9), wish(BOLT, 0)], {API: 4}) == {}, "nobody else wants any"
    assert too_little([wish(ACME, 2, cost=2), wish(BOLT, 1)], {API: 4}) == {API: 4}


def test_one_slot_at_a_time_goes_round_by_weight() -> None:
    wishes = [wish(ACME), wish(BOLT, weight=3)]
    assert served(Shortage(), wishes, 1, 400) == {ACME: 100, BOLT: 300}


def test_who_comes_later_has_no_claim_to_the_past() -> None:
    shortage = Shortage()
    served(shortage, [wish(ACME), wish(BOLT)], 1, 1000)
    assert served(shortage, [wish(ACME), wish(BOLT), wish(COIL)], 1, 9) == {ACME: 3, BOLT: 3, COIL: 3}


def test_who_waits_for_another_limit_does_not_save_turns_up() -> None:
    shortage = Shortage()
    served(shortage, [wish(ACME, room=0), wish(BOLT), wish(COIL)], 1, 1000)
    found = served(shortage, [wish(ACME), wish(BOLT), wish(COIL)], 1, 30)
    assert max(found.values()) - min(found.values()) <= 2


def test_what_needs_more_than_is_left_is_passed_over() -> None:
    assert served(Shortage(), [wish(ACME, cost=3), wish(BOLT)], 2, 10) == {ACME: 0, BOLT: 20}
    assert served(Shortage(), [wish(ACME, cost=3), wish(BOLT)], 4, 10) == {ACME: 10, BOLT: 10}


def test_nobody_gets_more_than_it_wants() -> None:
    wishes = [wish(ACME, 2), wish(BOLT, 100, room=3), wish(COIL, 9)]
    assert served(Shortage(), wishes, 10, 1) == {ACME: 2, BOLT: 3, COIL: 5}


def test_what_is_remembered_is_bounded() -> None:
    shortage = Shortage()
    for limit in range(3 * LIMITS_MAX):
        shortage.add(limit, [(ACME, 1, 1), (BOLT, 1, 0)])
    assert len(shortage.served) <= LIMITS_MAX
    for queue in range(1000):
        shortage.add(API, [((1, queue), 1, 1), ((1, queue + 1), 1, 1)])
    assert len(shortage.served[API].ahead) <= 2


def test_a_copy_changes_nothing() -> None:
    shortage = Shortage()
    served(shortage, [wish(ACME), wish(BOLT)], 1, 3)
    before = dict(shortage.served[API].ahead)
    served(shortage.copied(), [wish(ACME), wish(BOLT)], 1, 5)
    assert shortage.served[API].ahead == before
