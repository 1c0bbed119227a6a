"""Limits: refused where they are written down, with the name, the value and the way out."""

from __future__ import annotations

import dataclasses
import decimal
import fractions
import math
from typing import Any

import pytest

from qjs_pool import Limits, UsageError
from qjs_pool.limits import MiB, seconds_or_error


def test_the_defaults_are_those_of_the_contract() -> None:
    assert dataclasses.asdict(Limits()) == {
        "memory": 64 * MiB,
        "stack": MiB,
        "cpu": 5.0,
        "wall": 300.0,
        "result_chars": 4000,
        "console_chars": 4000,
        "value_bytes": 16 * MiB,
        "host_calls": 256,
        "host_concurrency": 32,
        "snapshot_bytes": None,
    }


_INTEGERS = [
    "memory", "stack", "result_chars", "console_chars", "value_bytes", "host_calls",
    "host_concurrency", "snapshot_bytes",
]  # fmt: skip


@pytest.mark.parametrize("name", _INTEGERS)
@pytest.mark.parametrize(
    "value", [-1, -(1 << 70), 1 << 70, 1.5, 64.0, "64", b"64", True, math.nan, math.inf, [1], 1j]
)
def test_a_bad_integer_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^{name}="):
        Limits(**{name: value})


@pytest.mark.parametrize("name", set(_INTEGERS) - {"host_calls"})
def test_zero_is_refused_where_nothing_could_run(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}=0 is out of range"):
        Limits(**{name: 0})


@pytest.mark.parametrize("name", set(_INTEGERS) - {"host_calls", "snapshot_bytes"})
def test_none_is_refused_where_it_means_nothing(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}=None"):
        Limits(**{name: None})


def test_no_tool_calls_and_any_number_of_them_are_limits() -> None:
    assert Limits(host_calls=0).host_calls == 0
    assert Limits(host_calls=None).host_calls is None


@pytest.mark.parametrize("name", ["cpu", "wall"])
@pytest.mark.parametrize(
    "value",
    [0, 0.0, -0.0, -1, -1e-9, math.nan, -math.inf, "5", b"5", True, [5], 1j, 10**400, 1e300, 1e7,
     decimal.Decimal(0), decimal.Decimal("nan"), -(10**400)],
    ids=lambda value: repr(value)[:12],
)  # fmt: skip
def test_a_bad_time_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^{name}"):
        Limits(**{name: value})


@pytest.mark.parametrize("value", [None, math.inf, decimal.Decimal("inf")])
def test_no_limit_on_time_can_be_said_in_two_ways(value: Any) -> None:
    limits = Limits(cpu=value, wall=value)
    assert (limits.cpu, limits.wall) == (None, None)


@pytest.mark.parametrize("value", [1, 0.001, decimal.Decimal("0.5"), fractions.Fraction(1, 3), 1e6])
def test_any_positive_number_is_a_time(value: Any) -> None:
    assert Limits(cpu=value).cpu == float(value)
    assert type(Limits(cpu=value).cpu) is float


def test_numpy_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    limits = Limits(cpu=numpy.float32(0.5), memory=numpy.int64(2 * MiB))
    assert (limits.cpu, limits.memory) == (0.5, 2 * MiB)
    assert type(limits.memory) is int


def test_a_whole_eval_may_take_less_than_its_cpu_limit() -> None:
    assert Limits(cpu=5.0, wall=1.0).wall == 1.0


def test_an_unknown_limit_is_refused() -> None:
    with pytest.raises(TypeError, match="timeout"):
        Limits(timeout=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Limits(64 * MiB)  # type: ignore[misc]


def test_limits_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Limits().cpu = 9.0  # type: ignore[misc]


def test_a_session_narrows_what_it_names_and_keeps_the_rest() -> None:
    pool = Limits(memory=32 * MiB, cpu=4.0, wall=None, host_calls=None)
    assert pool.narrowed(Limits(cpu=1.0)) == dataclasses.replace(pool, cpu=1.0)
    assert pool.narrowed(Limits(wall=9.0, host_calls=3)) == dataclasses.replace(
        pool, wall=9.0, host_calls=3
    )
    assert pool.narrowed(Limits()) == pool


@pytest.mark.parametrize(
    ("pool", "session", "name"),
    [
        ({"cpu": 1.0}, {"cpu": 2.0}, "cpu"), ({"cpu": 1.0}, {"cpu": None}, "cpu"),
        ({"memory": 8 * MiB}, {"memory": 16 * MiB}, "memory"),
        ({"host_calls": 4}, {"host_calls": None}, "host_calls"),
        ({"wall": 1.0}, {"wall": 2.0}, "wall"), ({}, {"host_concurrency": 64}, "host_concurrency"),
    ],
)  # fmt: skip
def test_a_session_cannot_widen(pool: Any, session: Any, name: str) -> None:
    with pytest.raises(UsageError, match=rf"session limit {name}=.*pool's"):
        Limits(**pool).narrowed(Limits(**session))


def test_the_node_cap_follows_the_byte_cap() -> None:
    assert Limits().value_nodes == 524_288
    assert Limits(value_bytes=64).value_nodes == 2


def test_a_value_of_the_widest_cap_fits_into_a_frame() -> None:
    from qjs_pool.wire.frames import MAX_TO_WORKER_BYTES

    assert Limits(value_bytes=48 * MiB).value_bytes < MAX_TO_WORKER_BYTES
    with pytest.raises(UsageError, match="value_bytes"):
        Limits(value_bytes=MAX_TO_WORKER_BYTES)


def test_a_time_says_what_it_is_the_time_of() -> None:
    with pytest.raises(UsageError, match="checkout_timeout='x' is not a number of seconds"):
        seconds_or_error("checkout_timeout", "x")
    assert seconds_or_error("checkout_timeout", math.inf) == math.inf
