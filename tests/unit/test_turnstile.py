"""First come, first served, whoever gives up meanwhile."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future

import pytest

from qjs_pool.errors import QueueFull
from qjs_pool.turnstile import Turnstile


def _queued(turnstile: Turnstile, count: int) -> list[Future[None]]:
    futures = [turnstile.enter() for _ in range(count)]
    assert all(future is not None and not future.done() for future in futures)
    return [future for future in futures if future is not None]


def test_as_many_as_fit_are_let_in_at_once() -> None:
    turnstile = Turnstile(3)
    assert [turnstile.enter() for _ in range(3)] == [None] * 3
    assert turnstile.holders == 3
    assert turnstile.enter() is not None


def test_those_who_wait_are_let_in_in_the_order_they_came() -> None:
    turnstile = Turnstile(1)
    assert turnstile.enter() is None
    waiting = _queued(turnstile, 3)
    for index in range(3):
        turnstile.leave()
        assert [future.done() for future in waiting] == [i <= index for i in range(3)]
        assert turnstile.holders == 1
    turnstile.leave()
    assert turnstile.holders == 0
    assert turnstile.enter() is None


def test_an_urgent_one_is_next_and_never_refused() -> None:
    turnstile = Turnstile(1, max_waiting=1)
    turnstile.enter()
    (ordinary,) = _queued(turnstile, 1)
    with pytest.raises(QueueFull):
        turnstile.enter()
    urgent = turnstile.enter(urgent=True)
    assert urgent is not None
    turnstile.leave()
    assert urgent.done()
    assert not ordinary.done()


def test_more_than_the_bound_are_refused_with_its_number() -> None:
    turnstile = Turnstile(1, max_waiting=2)
    turnstile.enter()
    _queued(turnstile, 2)
    with pytest.raises(QueueFull, match="bound is 2"):
        turnstile.enter()
    turnstile.leave()
    assert turnstile.enter() is not None  # one was let in, so there is room for one


def test_those_who_gave_up_do_not_count_against_the_bound() -> None:
    turnstile = Turnstile(1, max_waiting=2)
    turnstile.enter()
    for future in _queued(turnstile, 2):
        turnstile.give_up(future)
    assert turnstile.waiting == 0
    _queued(turnstile, 2)


def test_who_gives_up_is_passed_over() -> None:
    turnstile = Turnstile(1)
    turnstile.enter()
    first, second = _queued(turnstile, 2)
    turnstile.give_up(first)
    turnstile.leave()
    assert second.done()
    assert first.cancelled()


def test_a_future_that_was_cancelled_from_outside_is_passed_over() -> None:
    turnstile = Turnstile(1)
    turnstile.enter()
    first, second = _queued(turnstile, 2)
    first.cancel()  # as asyncio.wrap_future does
    turnstile.leave()
    assert second.done()
    turnstile.give_up(first)
    assert turnstile.holders == 1


def test_who_gives_up_after_being_let_in_lets_the_next_one_in() -> None:
    turnstile = Turnstile(1)
    turnstile.enter()
    first, second = _queued(turnstile, 2)
    turnstile.leave()
    assert first.done()
    turnstile.give_up(first)
    assert second.done()
    turnstile.leave()
    assert turnstile.holders == 0


def test_a_waiters_callback_may_use_the_turnstile() -> None:
    turnstile = Turnstile(1)
    turnstile.enter()
    (future,) = _queued(turnstile, 1)
    future.add_done_callback(lambda _: turnstile.leave())
    turnstile.leave()
    assert turnstile.holders == 0


def test_many_threads_never_are_more_than_fit_and_none_is_forgotten() -> None:
    turnstile, inside, most, lock = Turnstile(3), [0], [0], threading.Lock()

    def visit(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(100):
            turn = turnstile.enter()
            if turn is not None:
                if choose.random() < 0.3:
                    turnstile.give_up(turn)
                    continue
                turn.result(30)
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            with lock:
                inside[0] -= 1
            turnstile.leave()

    threads = [threading.Thread(target=visit, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert most[0] <= 3
    assert (turnstile.holders, turnstile.waiting) == (0, 0)
