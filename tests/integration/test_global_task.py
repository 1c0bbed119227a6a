"""The global `task` in real sessions: across evals, copies, crashes and snapshots."""

from __future__ import annotations

import os
import signal

import pytest

from qjs_pool import Pool, Tool, UsageError

TOOLS = {"task": Tool(call=lambda args: f"did {args['n']}", is_global=True)}


def test_it_is_called_by_its_name_and_is_back_in_each_eval(pool: Pool) -> None:
    with pool.session(tools=TOOLS) as session:
        assert session.eval("await task({n: 1})").value == "did 1"
        # A declaration may not replace what has to come back: it stands in for it.
        assert session.eval("twice(3); function twice(n) { return task(n) + task(n) }"
                            "function task(n) { return n }").value == 6  # fmt: skip
        assert session.eval("task = 5; task").value == 5
        result = session.eval("await Promise.all([2, 3].map(n => task({n})))")
        assert result.value == ["did 2", "did 3"]
        assert [call.name for call in result.calls] == ["task", "task"]


def test_copies_and_workers_that_take_over_have_it(pool: Pool) -> None:
    with pool.session(tools=TOOLS) as session:
        assert session.eval("var task = 1; task").value == 1
        with session.fork() as copy:
            assert copy.eval("await task({n: 1})").value == "did 1"
        os.kill(session.pid, signal.SIGKILL)
        assert session.eval("await task({n: 2})").value == "did 2"
        session.reset()
        assert session.eval("await task({n: 3})").value == "did 3"


def test_a_function_that_stood_in_for_it_is_kept_under_another_name(pool: Pool) -> None:
    with pool.session(tools=TOOLS) as session:
        session.eval("function task(n) { return n * 2 }\nconst twice = task, start = 1")
        session.eval("const other = task")
        blob = session.snapshot()
    with pool.session(tools=TOOLS, snapshot=blob) as heir:
        result = heir.eval("[twice(4), twice.name, await other({n: 5}), other === task]")
    assert result.value == [8, "task", "did 5", True]


def test_sessions_without_it_have_a_name_like_any_other(pool: Pool) -> None:
    with pool.session(tools={"task": lambda args: args}) as session:
        assert session.eval("typeof task").value == "undefined"
        session.eval("function task() { return 1 }")
        assert session.eval("task()").value == 1
        assert session.eval("(await tools.task({n: 1})).n").value == 1
        blob = session.snapshot()
    with pool.session(snapshot=blob) as heir:
        assert heir.eval("task()").value == 1


def test_no_other_tool_can_be_a_global(pool: Pool) -> None:
    with pytest.raises(UsageError, match="'search' can't be a global"):
        pool.session(tools={"search": Tool(call=len, is_global=True)})
