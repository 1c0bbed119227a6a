"""Values through a real session: from the host, from the guest, and there and back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from typing import Any, Final

import pytest

from qjs_pool import GuestError, Limits, Pool, Session
from qjs_pool.errors import ValueConversionError, ValueTooLarge
from qjs_pool.wire.values import MAX_DEPTH, MAX_INT_BITS


def _same(one: Any, other: Any) -> bool:
    """Equal, of one type, and -0.0 and NaN told apart."""
    return type(one) is type(other) and repr(one) == repr(other)


@dataclasses.dataclass
class _Point:
    x: int
    at: dt.date


def _cycles() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    two: dict[str, Any] = {"a": [{}]}
    two["a"][0]["b"] = two
    return [one, two]


_ROUND: Final[list[tuple[Any, Any]]] = [
    (value, value)
    for value in (
        None, True, 0, 1, -1, 2**53 - 1, -(2**53) + 1, 2**53, -(2**53), 2**200, -(2**200), 1.5,
        -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, "", "a\x00b", "\u2028",
        "é😀", "<>&'\"\\`${x}", b"", bytes(range(256)), [], {}, [[], {}], {"a": {"b": [1, None]}},
        {"$": 1}, {"$": ["num", "nan"]}, {"$": {"$": 2}}, {"": 1, " ": 2, "constructor": 4},
        {"__proto__": 1}, {"__proto__": {"polluted": True}}, {"toString": 1, "then": 2},
        [math.nan, {"$": [-0.0]}, b"x", 2**64],
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "back"),
    [
        *_ROUND,
        ((1, 2), [1, 2]), ("\ud800", "\ufffd"), (dt.date(2024, 1, 1), "2024-01-01"), (1e21, 1e21),
        (5.0, 5), ({1: 2}, {"1": 2}),
        (_Point(1, dt.date(2024, 1, 1)), {"x": 1, "at": "2024-01-01"}),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_a_value_comes_back_from_a_session(session: Session, value: Any, back: Any) -> None:
    session.set("v", value)
    assert _same(session.eval("v").value, back)
    assert session.eval(
        "({}).polluted === undefined && Object.getPrototypeOf({}) === Object.prototype"
    ).value


@pytest.mark.parametrize(
    ("value", "check"),
    [
        (2**64, "typeof v === 'bigint' && v === 2n ** 64n"),
        (b"ab", "v instanceof Uint8Array && v.length === 2 && v[1] === 98"),
        (dt.datetime(2024, 2, 29, tzinfo=dt.UTC), "new Date(v).getTime() === 1709164800000"),
        ({"__proto__": 1}, "Object.keys(v)[0] === '__proto__' && v.toString === {}.toString"),
        ({"$": 1}, "Object.keys(v).join() === '$'"), (math.nan, "v !== v"),
        (-0.0, "Object.is(v, -0)"),
        ([1, [2]], "Array.isArray(v[1]) && v.length === 2"), (None, "v === null"), (5.0, "v === 5"),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_a_host_value_is_native_to_the_guest(session: Session, value: Any, check: str) -> None:
    session.set("v", value)
    result = session.eval(check)
    assert result.text == "true", result.error


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("undefined", None), ("null", None), ("[undefined, , 1]", [None, None, 1]),
        ("({a: undefined, b: 1})", {"b": 1}), ("1", 1), ("1.5", 1.5), ("-0", -0.0),
        ("NaN", math.nan),
        ("2 ** 53", float(2**53)), ("2 ** 53 - 1", 2**53 - 1), ("-(2 ** 53) + 1", -(2**53) + 1),
        ("1e21", 1e21), ("2n ** 70n", 2**70), ("-5n", -5), ("0n", 0),
        ("new Date(0)", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)), ("new Date(NaN)", None),
        ("new Date(8.64e15)", None),
        ("new Date(-62135596800000)", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        ("new Map([['a', 1], [2, {b: 3}]])", {"a": 1, 2: {"b": 3}}),
        ("new Map([[{}, 1]])", [({}, 1)]), ("new Map([[1, 'a'], [true, 'b']])", [(1, "a"),
        (True, "b")]),
        ("new Set([1, 'a', [2]])", [1, "a", [2]]), ("new Uint8Array([0, 255])", b"\x00\xff"),
        ("new Uint16Array([1, 256])", b"\x01\x00\x00\x01"),
        ("new Uint8Array([1, 2, 3]).buffer", b"\1\2\3"),
        ("new DataView(new Uint8Array([1, 2, 3]).buffer, 1)", b"\2\3"),
        ("'\\ud800a'", "\ufffda"), ("({['\\udc00']: 1})", {"\ufffd": 1}),
        ("({$: ['num', 'nan']})", {"$": ["num", "nan"]}),
        ("new Map([['$', 1]])", {"$": 1}), ("({get a() { return 7 }})", {"a": 7}),
        ("class K { x = 1; #y = 2; m() {} } new K()", {"x": 1}), ("new String('s')", "s"),
        ("Object(7n)", 7),
        ("[1, 2, 3].map(x => x * 2)", [2, 4, 6]), ("Object.create(null)", {}),
        ("new Boolean(false)", False),
    ],
)  # fmt: skip
def test_a_guest_value_becomes_its_python_value(session: Session, code: str, value: Any) -> None:
    result = session.eval(code)
    assert result.error is None
    assert _same(result.value, value)


@pytest.mark.parametrize(
    ("code", "part"), [("(function f() {})", "f"), ("Symbol('s')", "Symbol(s)")]
)
def test_a_function_or_symbol_is_its_text(session: Session, code: str, part: str) -> None:
    result = session.eval(code)
    assert isinstance(result.value, str)
    assert part in result.value
    assert result.kind == "handle"


def test_an_error_of_the_guest_is_a_guest_error(session: Session) -> None:
    value = session.eval("[new RangeError('far')]").value
    assert isinstance(value[0], GuestError)
    assert (value[0].name, value[0].message) == ("RangeError", "far")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("const a = [1]; a.push(a); a", ValueConversionError),
        ("const m = new Map(); m.set('m', m); m", ValueConversionError),
        ("let d = 1; for (let i = 0; i < 201; i++) d = [d]; d", ValueConversionError),
        ("({get a() { throw new TypeError('no') }})", ValueConversionError),
        ("'x'.repeat(20e6)", ValueTooLarge), ("new Uint8Array(20e6)", ValueTooLarge),
        ("new Array(600000).fill(0)", ValueTooLarge),
    ],
)  # fmt: skip
def test_a_value_that_cannot_cross_fails_when_asked_for_and_only_then(
    session: Session, code: str, error: type[Exception]
) -> None:
    result = session.eval(code)
    assert result.ok
    assert result.text
    for _ in range(2):
        with pytest.raises(error):
            _ = result.value
    assert result.unwrap() == result.text  # a program run for its effects needs no last line
    assert session.eval("6 * 7").value == 42


@pytest.mark.parametrize(
    "around",
    [
        "[v]",
        "({a: v})",
        "new Map([[1, v]])",
        "new Set([v])",
        "({$: v})",
    ],
)
def test_a_guest_value_nested_to_the_cap_crosses(session: Session, around: str) -> None:
    result = session.eval(f"let v = 1; for (let i = 0; i < {MAX_DEPTH}; i++) v = {around}; v")
    assert result.ok
    assert result.value is not None


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_integer_crosses_both_ways(session: Session, sign: int) -> None:
    value = sign * ((1 << MAX_INT_BITS) - 1)
    session.set("v", value)
    assert session.eval("v").value == value


def test_an_answer_that_is_too_large_an_integer_rejects_its_call(pool: Pool) -> None:
    tools = {"huge": lambda _: {"a": [1 << MAX_INT_BITS]}}
    with pool.session(tools=tools) as session:
        result = session.eval("let n = 1; try { await tools.huge({}) } catch (e) { e.name }")
        assert result.value == "ValueTooLarge"
        assert session.eval("n").value == 1


def test_a_value_that_cannot_be_set_changes_nothing(session: Session) -> None:
    session.set("v", 1)
    too_large = ["x" * (Limits().value_bytes + 1), 1 << MAX_INT_BITS, [-1 << MAX_INT_BITS]]
    for value in (object(), _cycles()[0], *too_large):
        with pytest.raises((ValueConversionError, ValueTooLarge)):
            session.set("v", value)
    assert session.eval("v").value == 1
