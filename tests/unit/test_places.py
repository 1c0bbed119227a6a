"""Places of tool calls: shared ones, those of a tool's own, and the order of those that wait."""

from __future__ import annotations

import dataclasses

import pytest

from qjs_pool.errors import UsageError
from qjs_pool.places import Places
from qjs_pool.tools import Tool


@dataclasses.dataclass(eq=False)
class Waiting:
    """What a call is to the places."""

    number: int
    name: str
    tool: Tool
    in_place: bool = False


PLAIN = Tool(call=len)
NARROW = Tool(call=len, concurrency=2)


def queued(places: Places[Waiting], *calls: Waiting) -> list[int]:
    """The numbers of the calls that start once these have come."""
    for call in calls:
        places.wait(call)
    return started(places)


def started(places: Places[Waiting]) -> list[int]:
    numbers = []
    while (call := places.take()) is not None:
        assert call.in_place
        numbers.append(call.number)
    return numbers


def test_calls_start_in_their_order_as_places_become_free() -> None:
    places: Places[Waiting] = Places(2)
    calls = [Waiting(number, "plain", PLAIN) for number in range(4)]
    assert queued(places, *calls) == [0, 1]
    places.leave(calls[1])
    places.leave(calls[1])  # it has left already
    assert started(places) == [2]
    places.leave(calls[0])
    assert started(places) == [3]


def test_a_tool_with_places_of_its_own_neither_takes_nor_waits_for_the_shared_ones() -> None:
    places: Places[Waiting] = Places(1)
    narrow = [Waiting(number, "narrow", NARROW) for number in range(4)]
    plain = [Waiting(number, "plain", PLAIN) for number in range(10, 12)]
    assert queued(places, *narrow, *plain) == [0, 1, 10]
    places.leave(plain[0])
    assert started(places) == [11]
    places.leave(narrow[0])
    assert started(places) == [2]


def test_each_tool_with_places_of_its_own_has_its_own() -> None:
    places: Places[Waiting] = Places(1)
    calls = [Waiting(number, f"tool{number % 2}", NARROW) for number in range(8)]
    assert sorted(queued(places, *calls)) == [0, 1, 2, 3]


def test_one_that_is_withdrawn_never_starts() -> None:
    places: Places[Waiting] = Places(1)
    calls = [Waiting(number, "plain", PLAIN) for number in range(3)]
    assert queued(places, *calls) == [0]
    assert places.withdraw(calls[1])
    assert not places.withdraw(calls[1])
    assert not places.withdraw(calls[0])  # it runs
    places.leave(calls[0])
    assert started(places) == [2]


def test_after_clearing_nobody_waits_and_who_runs_keeps_the_place() -> None:
    places: Places[Waiting] = Places(1)
    calls = [Waiting(number, "plain", PLAIN) for number in range(3)]
    assert queued(places, *calls) == [0]
    places.clear()
    assert queued(places, Waiting(9, "plain", PLAIN)) == []
    places.leave(calls[0])
    assert started(places) == [9]


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, "2", True])
def test_a_concurrency_that_is_no_count_is_refused(concurrency: object) -> None:
    with pytest.raises(UsageError, match="concurrency"):
        Tool(call=len, concurrency=concurrency)  # type: ignore[arg-type]
