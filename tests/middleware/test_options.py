"""The constructor: its defaults, and what it says about values that are no good."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest

pytest.importorskip("langchain")

from langchain_core.tools import tool

from qjs_pool import Limits, Pool
from qjs_pool.middleware import CodeInterpreterMiddleware

DEFAULTS = {
    "memory_limit": 64 << 20,
    "timeout": 5.0,
    "tool_name": "eval",
    "capture_console": True,
    "max_result_chars": 4000,
    "ptc": None,
    "max_ptc_calls": 256,
    "subagents": True,
    "max_subagent_concurrency": 32,
    "mode": "thread",
    "max_snapshot_bytes": None,
    "snapshot_signing_key": None,
    "snapshot_store": None,
    "park": 300.0,
    "max_parked": 256,
    "skills_backend": None,
    "system_prompt": None,
    "pool": None,
}


def test_the_defaults_are_those_that_the_peers_users_know() -> None:
    parameters = inspect.signature(CodeInterpreterMiddleware).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in parameters.values())


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("memory_limit", "64MB", TypeError),
        ("memory_limit", True, TypeError),
        ("memory_limit", 1000, ValueError),
        ("memory_limit", 1 << 50, ValueError),
        ("timeout", 0, ValueError),
        ("timeout", math.nan, ValueError),
        ("timeout", "5", TypeError),
        ("timeout", True, TypeError),
        ("wall_timeout", -1, ValueError),
        ("wall_timeout", 0, ValueError),
        ("tool_name", "", ValueError),
        ("timeout", 10**400, ValueError),
        ("wall_timeout", 10**400, ValueError),
        ("tool_name", "two words", ValueError),
        ("tool_name", None, TypeError),
        ("capture_console", 1, TypeError),
        ("max_result_chars", 0, ValueError),
        ("max_result_chars", 1.5, TypeError),
        ("max_result_chars", 10**30, ValueError),
        ("max_snapshot_bytes", 10**30, ValueError),
        ("max_ptc_calls", 10**30, ValueError),
        ("max_stack_size", 10**30, ValueError),
        ("timeout", 1e9, ValueError),
        ("wall_timeout", 1e9, ValueError),
        ("ptc", "search", TypeError),
        ("ptc", [1], TypeError),
        ("ptc", [""], ValueError),
        ("ptc", ["!execute"], ValueError),
        ("ptc", ["2fast"], ValueError),
        ("ptc", ["a_b", "a-b"], ValueError),
        ("max_ptc_calls", 0, ValueError),
        ("max_ptc_calls", 1.0, TypeError),
        ("subagents", None, TypeError),
        ("max_subagent_concurrency", 0, ValueError),
        ("max_subagent_concurrency", True, TypeError),
        ("mode", "forever", ValueError),
        ("max_snapshot_bytes", 0, ValueError),
        ("snapshot_signing_key", 7, TypeError),
        ("snapshot_signing_key", "", ValueError),
        ("snapshot_signing_key", [], ValueError),
        ("snapshot_signing_key", ["a", 7], TypeError),
        ("snapshot_store", 7, TypeError),
        ("snapshot_store", "", ValueError),
        ("park", -1, ValueError),
        ("park", None, TypeError),
        ("max_parked", -1, ValueError),
        ("skills_backend", object(), TypeError),
        ("system_prompt", b"text", TypeError),
        ("max_stack_size", 1, ValueError),
        ("clock", "sundial", ValueError),
        ("pool", object(), TypeError),
        ("propagate_tool_errors", "yes", TypeError),
        ("snapshot_between_turns", "yes", TypeError),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_option(
    option: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        CodeInterpreterMiddleware(**{option: value})
    assert caught.type is error or issubclass(caught.type, error)
    # At the start, as a name of its own: "wall_timeout" is no name of "timeout".
    assert str(caught.value).startswith(option)


@pytest.mark.parametrize("value", [None, -1, -0.5, math.inf])
def test_no_or_a_negative_timeout_is_no_limit_and_the_prompt_does_not_mention_one(
    value: float | None,
) -> None:
    middleware: Any = CodeInterpreterMiddleware(timeout=value)
    assert middleware._options.limits.cpu is None
    assert "CPU" not in middleware._base_prompt


def test_a_whole_number_of_seconds_will_do() -> None:
    middleware: Any = CodeInterpreterMiddleware(timeout=60, wall_timeout=None)
    assert middleware._options.limits.cpu == 60.0
    assert middleware._options.limits.wall is None


def test_two_tools_with_one_javascript_name_are_both_named() -> None:
    @tool("read-file")
    def dashed() -> None:
        """Dashed."""

    with pytest.raises(ValueError, match=r"'read-file'.*'read_file'.*tools\.readFile"):
        CodeInterpreterMiddleware(ptc=[dashed, "read_file"])


@pytest.mark.parametrize(("value", "mode"), [(False, "turn"), (True, "thread")])
def test_the_older_option_is_a_deprecated_alias_of_mode(value: bool, mode: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"mode='{mode}'"):
        middleware: Any = CodeInterpreterMiddleware(snapshot_between_turns=value)
    assert middleware._options.mode == mode


def test_the_older_option_may_not_contradict_the_newer() -> None:
    with (
        pytest.warns(DeprecationWarning, match="use mode='turn'"),
        pytest.raises(ValueError, match="contradicts mode='call'"),
    ):
        CodeInterpreterMiddleware(mode="call", snapshot_between_turns=False)


def test_configurations_of_the_peers_users_are_accepted() -> None:
    with pytest.warns(DeprecationWarning, match=r"the global task\(\)"):
        CodeInterpreterMiddleware(
            ptc=["task", "start_async_task", "read_file", "grep", "glob", "ls"],
            timeout=60.0,
            max_result_chars=10000,
            tool_name="code_interpreter",
            mode=None,  # type: ignore[arg-type]  # the peer's default
        )


def test_limits_must_fit_into_those_of_a_shared_pool() -> None:
    with Pool(limits=Limits(cpu=2.0)) as pool:
        with pytest.raises(ValueError, match=r"timeout=10\.0 is wider than the pool's 2\.0"):
            CodeInterpreterMiddleware(pool=pool, timeout=10.0)
        with pytest.raises(ValueError, match="clock='real' contradicts"):
            CodeInterpreterMiddleware(pool=pool, clock="real")
        CodeInterpreterMiddleware(pool=pool)  # the defaults are the pool's


@pytest.mark.parametrize(
    ("limits", "option", "value"),
    [
        (Limits(memory=1 << 20), "memory_limit", 2 << 20),
        (Limits(stack=1 << 16), "max_stack_size", 1 << 17),
        (Limits(cpu=2.0), "timeout", 10.0),
        (Limits(wall=2.0), "wall_timeout", 10.0),
        (Limits(result_chars=10), "max_result_chars", 20),
        (Limits(console_chars=10), "max_result_chars", 20),
        (Limits(host_calls=10), "max_ptc_calls", 20),
        (Limits(snapshot_bytes=2000), "max_snapshot_bytes", 4000),
    ],
)
def test_a_limit_wider_than_the_pools_is_refused_with_the_name_of_its_option(
    limits: Limits, option: str, value: Any
) -> None:
    options: Any = {option: value}
    with (
        Pool(limits=limits) as pool,
        pytest.raises(ValueError, match=rf"^session limit {option}={value} is wider than the pool"),
    ):
        CodeInterpreterMiddleware(pool=pool, **options)


def test_two_middlewares_in_one_agent_need_different_tool_names() -> None:
    names = {
        CodeInterpreterMiddleware().name,
        CodeInterpreterMiddleware(tool_name="sandbox").name,
    }
    assert names == {"CodeInterpreterMiddleware", "CodeInterpreterMiddleware_sandbox"}


def test_any_text_may_be_a_key() -> None:
    CodeInterpreterMiddleware(snapshot_signing_key="\ud800 odd").close()
