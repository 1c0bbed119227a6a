"""The names of tools, the policies of their errors, and what a `Tool` may say."""

from __future__ import annotations

import asyncio
import functools
import keyword
import math
import re
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjs_pool import UsageError
from qjs_pool.errors import ValueTooLarge
from qjs_pool.tools import Tool, Toolbox, check_names, describe_error, guest_name, is_async


@pytest.mark.parametrize(
    ("name", "guest"),
    [
        ("search", "search"), ("web_search", "webSearch"), ("my-tool", "myTool"),
        ("webSearch", "webSearch"), ("WebSearch", "WebSearch"), ("a.b.c", "aBC"),
        ("read file", "readFile"), ("fs/read", "fsRead"), ("mcp:list", "mcpList"),
        ("web__search", "webSearch"), ("search_", "search"), ("get_2_rows", "get2Rows"),
        ("HTTP_get", "HTTPGet"), ("a", "a"), ("$jq", "$jq"), ("delete", "delete"),
    ],
)  # fmt: skip
def test_a_name_becomes_camel_case(name: str, guest: str) -> None:
    assert guest_name(name) == guest
    check_names([name])


@settings(max_examples=200, deadline=None)
@given(st.text(string.ascii_letters + string.digits + "_-. /:$", max_size=12))
def test_a_name_that_passes_is_an_identifier_and_stable(name: str) -> None:
    try:
        check_names([name])
    except UsageError:
        return
    guest = guest_name(name)
    assert re.fullmatch(r"[A-Za-z_$][\w$]*", guest, re.ASCII)
    assert guest_name(guest) == guest


@pytest.mark.parametrize(
    "name",
    ["", " ", "1st", "a,b", "a(b)", "été", "поиск", "a\nb", "a\x00", "tool!", "_", "-", None, 1,
     b"a", "x\n", "__"],
)  # fmt: skip
def test_a_name_that_gives_no_identifier_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="no JavaScript identifier"):
        Toolbox.of({name: len})


@pytest.mark.parametrize("name", ["then", "$describe"])
def test_a_name_with_a_meaning_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(name))):
        Toolbox.of({name: len})


def test_two_names_that_collide_are_both_named() -> None:
    with pytest.raises(UsageError, match=r"'web_search' and 'web-search'.*tools\.webSearch"):
        Toolbox.of({"web_search": len, "web-search": len})
    Toolbox.of({"web_search": len, "websearch": len})  # told apart by their case


@pytest.mark.parametrize("tools", [[len], "search", 1, [("a", len)]])
def test_tools_that_are_no_mapping_are_refused(tools: Any) -> None:
    with pytest.raises(UsageError, match="tools must map"):
        Toolbox.of(tools)


@pytest.mark.parametrize(
    "options",
    [{"call": 1}, {"call": None}, {"call": len, "errors": "all"}, {"call": len, "timeout": 0},
     {"call": len, "timeout": math.nan}, {"call": len, "timeout": "1"},
     {"call": len, "required": "query"}, {"call": len, "required": (1,)},
     {"call": len, "description": None}],
)  # fmt: skip
def test_a_tool_that_says_nonsense_is_refused(options: Any) -> None:
    with pytest.raises(UsageError):
        Tool(**options)


def test_a_tool_without_a_time_limit_can_be_said_in_two_ways() -> None:
    assert Tool(call=len, timeout=math.inf).timeout is None
    assert Tool(call=len).timeout is None


def test_tools_are_found_by_the_guests_name_only() -> None:
    toolbox = Toolbox.of({"web_search": len})
    found = toolbox.find("webSearch")
    assert found is not None
    assert found.call is len
    for name in ("web_search", "websearch", "__class__", "tools", ""):
        assert toolbox.find(name) is None


def test_only_task_can_be_a_global() -> None:
    (told,) = Toolbox.of({"task": Tool(call=len, is_global=True)}).described()
    assert told.is_global
    assert not Toolbox.of({"task": len}).described()[0].is_global
    with pytest.raises(UsageError, match="'Array' can't be a global"):
        Toolbox.of({"Array": Tool(call=len, is_global=True)})


def test_what_the_worker_is_told_can_be_sent() -> None:
    (told,) = Toolbox.of(
        {"a_b": Tool(call=len, required=("q\ud800",), description="d\ud800")}
    ).described()
    assert (told.name, told.alias, told.required, told.description) == (
        "aB", "a_b", ["q\ufffd"], "d\ufffd",
    )  # fmt: skip


async def _coroutine(args: Any) -> Any:
    return args


class _AsyncObject:
    async def __call__(self, args: Any) -> Any:
        return args


@pytest.mark.parametrize(
    ("call", "expected"),
    [(_coroutine, True), (functools.partial(_coroutine), True), (_AsyncObject(), True),
     (_AsyncObject().__call__, True), (len, False), (lambda a: _coroutine(a), False),
     (dict, False)],
    ids=repr,
)  # fmt: skip
def test_an_async_callable_is_told_from_a_sync_one(call: Any, expected: bool) -> None:
    assert is_async(call) is expected


class ToolException(Exception):  # the name that LangChain gives it
    pass


class _Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "message", "kind", "none"),
    [
        (ValueError("row 17"), "row 17", "the tool failed", "the tool failed"),
        (ToolException("no such city"), "no such city", "no such city", "the tool failed"),
        (ValueTooLarge("over the cap"), "over the cap", "over the cap", "the tool failed"),
        (_Broken(), "the tool failed", "the tool failed", "the tool failed"),
        (ValueError("x" * 9000), "x" * 4000, "the tool failed", "the tool failed"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_the_guest_learns_what_the_policy_says(
    error: Exception, message: str, kind: str, none: str
) -> None:
    name = type(error).__name__
    assert describe_error(error, "message") == (name, message)
    assert describe_error(error, "type") == (name, kind)
    assert describe_error(error, "none") == ("ToolError", none)


def test_a_cancelled_call_is_said_to_be_one() -> None:
    for policy in ("message", "type", "none"):
        name, _ = describe_error(asyncio.CancelledError(), policy)  # type: ignore[arg-type]
        assert name == "Cancelled"


def test_words_of_either_language_are_fine_as_names() -> None:
    check_names(name for name in keyword.kwlist if name.isalpha())
