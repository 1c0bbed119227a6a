"""Walks work that is written once for both kinds of caller, in a thread or in an event loop.

The work is a generator that yields what is to be done, as `(what, argument)`; the outcome, or the
exception that it raised, goes back in. None of the work itself belongs here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")
Work = Generator[tuple[str, Any], Any, T]
# What an exception is to the work, given what raised it.
Told = Callable[[str, BaseException], BaseException]


def _as_it_is(_what: str, error: BaseException) -> BaseException:
    return error


def walk(work: Work[T], do: Callable[[str, Any], Any], told: Told = _as_it_is) -> T:
    """Do everything in the calling thread; what the work returns."""
    answer, error = None, None
    while True:
        try:
            what, argument = work.send(answer) if error is None else work.throw(error)
        except StopIteration as end:
            done: T = end.value
            return done
        answer, error = None, None
        try:
            answer = do(what, argument)
        except BaseException as raised:
            error = told(what, raised)


async def awalk(
    work: Work[T], do: Callable[[str, Any], Awaitable[Any]], told: Told = _as_it_is
) -> T:
    """As `walk`, in the running loop."""
    answer, error = None, None
    while True:
        try:
            what, argument = work.send(answer) if error is None else work.throw(error)
        except StopIteration as end:
            done: T = end.value
            return done
        answer, error = None, None
        try:
            answer = await do(what, argument)
        except BaseException as raised:
            error = told(what, raised)
