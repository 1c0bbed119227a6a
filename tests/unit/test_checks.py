"""What callers pass: code, timeouts, names, modules, worker functions."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from qjs_pool import Limits, Pool, UsageError
from qjs_pool.checks import checked_code, checked_global, checked_timeout
from qjs_pool.errors import ValueConversionError
from qjs_pool.functions import pickled_functions
from qjs_pool.modules import MAX_SOURCE_BYTES, checked_modules
from qjs_pool.wire.frames import MAX_CODE_BYTES


@pytest.mark.parametrize("code", [None, 1, b"1", ["1"], object(), Exception("1")])
def test_code_that_is_no_text_is_refused(code: Any) -> None:
    with pytest.raises(UsageError, match=f"str .* not {type(code).__name__}"):
        checked_code(code)


@pytest.mark.parametrize("char", ["x", "é", "😀"])
def test_code_is_measured_in_bytes(char: str) -> None:
    size = len(char.encode())
    assert len(checked_code(char * (MAX_CODE_BYTES // size)).encode()) == MAX_CODE_BYTES
    with pytest.raises(UsageError, match=f"{MAX_CODE_BYTES}"):
        checked_code(char * (MAX_CODE_BYTES // size + 1))


def test_lone_surrogates_in_code_become_replacement_characters() -> None:
    assert checked_code("'\ud800é'") == "'\ufffdé'"
    assert checked_code("") == ""


def test_a_timeout_is_within_the_limit() -> None:
    limits = Limits(cpu=2.0)
    assert checked_timeout(None, limits) == 2.0
    assert checked_timeout(1, limits) == 1.0
    assert checked_timeout(2.0, limits) == 2.0
    assert checked_timeout(math.inf, Limits(cpu=None)) is None
    assert checked_timeout(None, Limits(cpu=None)) is None


@pytest.mark.parametrize("timeout", [0, -1, math.nan, "1", True, [1], 2.5, math.inf, 10**400, 1e9])
def test_a_bad_timeout_is_refused_by_name(timeout: Any) -> None:
    with pytest.raises(UsageError, match="timeout"):
        checked_timeout(timeout, Limits(cpu=2.0))


@pytest.mark.parametrize("name", ["", "1a", "a b", "a-b", "a.b", "x\n", "x;", None, 1, "'", "é-"])
def test_a_global_needs_an_identifier(name: Any) -> None:
    with pytest.raises(UsageError, match="not a JavaScript identifier"):
        checked_global(name, 1, Limits())


def test_a_global_is_encoded_under_the_sessions_caps() -> None:
    assert checked_global("$rows_1", [1, "a"], Limits()) == ("$rows_1", '[1,"a"]')
    with pytest.raises(ValueConversionError):
        checked_global("x", object(), Limits())
    with pytest.raises(UsageError, match="100"):
        checked_global("x", "y" * 101, Limits(value_bytes=100))


_GOOD = {"@/skills/stats": {"index.ts": "export const a = 1", "lib/util.js": "", "d.json": "{}"}}


def test_modules_that_are_well_formed_pass() -> None:
    assert checked_modules(_GOOD) == _GOOD
    assert checked_modules(None) == {}
    assert checked_modules({"@/s": {"index.js": "'\ud800'"}}) == {"@/s": {"index.js": "'\ufffd'"}}


@pytest.mark.parametrize(
    ("modules", "part"),
    [
        ([], "list"), ("@/x", "str"), ({"skills": {}}, "'skills'"), ({"@/": {}}, "'@/'"),
        ({"@/../etc": {}}, "etc"), ({"@/a/../b": {}}, "'@/a/../b'"), ({"@/a b": {}}, "'@/a b'"),
        ({"@/a\n": {}}, "form"), ({1: {}}, "1"), ({"@/a": "source"}, "'@/a'"),
        ({"@/a": {"x.py": ""}}, "'x.py'"), ({"@/a": {"../x.js": ""}}, "'../x.js'"),
        ({"@/a": {"/x.js": ""}}, "'/x.js'"), ({"@/a": {"x.js": b""}}, "text"),
        ({"@/a": {1: ""}}, "1"), ({"@/a": {"x.js": None}}, "text"),
    ],
)  # fmt: skip
def test_a_module_that_is_not_well_formed_is_refused_by_name(modules: Any, part: str) -> None:
    with pytest.raises(UsageError, match=part.replace(".", r"\.")):
        checked_modules(modules)


@pytest.mark.parametrize("char", ["x", "é"])
def test_modules_are_measured_in_bytes_all_together(char: str) -> None:
    half = char * (MAX_SOURCE_BYTES // 2 // len(char.encode()))
    assert checked_modules({"@/a": {"x.js": half}, "@/b": {"x.js": half}})
    with pytest.raises(UsageError, match=f"{MAX_SOURCE_BYTES}"):
        checked_modules({"@/a": {"x.js": half}, "@/b": {"x.js": half + "x"}})


async def _async_function(args: Any) -> Any:
    return args


@pytest.mark.parametrize(
    ("functions", "part"),
    [
        ({"f": 1}, "'f' is not callable"), ({"f": _async_function}, "'f' is async"),
        ({"1f": len}, "'1f'"), ({"a_b": len, "aB": len}, "'a_b' and 'aB'"),
        ({"then": len}, "'then'"), ({"f": threading.Lock().acquire}, "'f' cannot be sent"),
        ([len], "not be a list"), (5, "not be a int"),
    ],
)  # fmt: skip
def test_a_bad_worker_function_is_refused_by_name(functions: Any, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        pickled_functions(functions)
    with pytest.raises(UsageError, match=part):
        Pool(worker_functions=functions)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"host_timeout": 0}, "host_timeout=0"), ({"host_timeout": "1"}, "host_timeout='1'"),
        ({"host_timeout": -1}, "host_timeout=-1"), ({"tool_errors": "all"}, "tool_errors='all'"),
        ({"on_tool_call": 1}, "on_tool_call=1"), ({"max_sessions": 0}, "max_sessions=0"),
        ({"max_sessions": True}, "max_sessions=True"), ({"min_idle": -1}, "min_idle=-1"),
        ({"isolation": "none"}, "isolation='none'"), ({"durability": 1}, "durability=1"),
        ({"clock": "utc"}, "clock='utc'"), ({"limits": {}}, "limits={}"),
        ({"preload": b""}, "preload"), ({"modules": {"x": {}}}, "'x'"),
        ({"checkout_timeout": 0}, "checkout_timeout=0"),
    ],
)  # fmt: skip
def test_a_bad_pool_option_is_refused_by_name(options: Any, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        Pool(**options)


def test_an_unknown_pool_option_is_refused() -> None:
    with pytest.raises(TypeError, match="memory"):
        Pool(memory=1)  # type: ignore[call-arg]
