"""`task()`: subagents that programs start, over the task tool that Deep Agents gives an agent.

What belongs here: telling that tool, and a call of it. What does not: whether programs get it
(`ptc`), what the model is told (`subagent_prompt`).
A call takes the agent's tool path as any other does. What is added: the input in the spelling of
programs, an answer of a given shape, an error where the tool only says that it refuses, and events.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from .capture import Record
from .dispatch import EvalScope, Prepared, RelayedTool, ToolError
from .seam import GraphBubbleUp, answer_format, is_invalid_resume
from .signatures import input_schema
from .subagent_events import Progress
from .task_input import TaskInput, checked_task

# Under which an agent of Deep Agents looks for the shape of a subagent's answer. Spelled out, as
# importing it would load all of Deep Agents; a test holds it against the original.
FORMAT_KEY: Final = "__deepagents_subagent_response_format"
TASK: Final = "task"
_FIELDS: Final = frozenset({"description", "subagent_type"})
_MAX_SHOWN: Final = 200


def is_task_tool(tool: Any) -> bool:
    """Whether it is the tool that starts an agent's subagents, by its name and input."""
    return (
        isinstance(tool, BaseTool)
        and tool.name == TASK
        and set(input_schema(tool).get("properties") or ()) >= _FIELDS
    )


def find_task_tool(tools: Iterable[Any]) -> BaseTool | None:
    """The tool that starts subagents, where the agent has one."""
    return next((tool for tool in tools if is_task_tool(tool)), None)


def subagents_of(tool: BaseTool) -> dict[str, str]:
    """The subagents' descriptions by name; empty where the tool is not made as Deep Agents do.

    It says them in prose only, which a host may replace. So their names are read off the function's
    closure; without it, the prompt leaves them out, and the tool itself refuses what it lacks.
    """
    try:
        graphs = inspect.getclosurevars(_function_of(tool)).nonlocals["subagent_graphs"]
        names = [str(name) for name in graphs]
    except (KeyError, TypeError, AttributeError, ValueError):
        return {}
    return {name: _described(name, tool.description) for name in names}


def _described(name: str, text: str) -> str:
    found = re.search(rf"^- {re.escape(name)}: (.+)$", text, re.MULTILINE)
    return "" if found is None else found[1]


def _function_of(tool: BaseTool) -> Any:
    return getattr(tool, "func", None) or getattr(tool, "coroutine", None)


class SubagentTool(RelayedTool):
    """The task tool as the relay calls it."""

    def __init__(self, tool: BaseTool, known: Collection[str]) -> None:
        super().__init__(tool)
        self._known = known
        module = str(getattr(_function_of(tool), "__module__", ""))
        self._is_deep = module.partition(".")[0] == "deepagents"

    @contextlib.contextmanager
    def prepared(self, scope: EvalScope, record: Record, args: Any) -> Iterator[Prepared]:
        """As of any tool, with the input checked, and events around the call."""
        task = checked_task(args, self._known)
        progress = Progress(
            scope.stream_writer,
            eval_id=scope.call_id,
            tool_call_id=record.call_id,
            task=task,
            number=record.index,
        )
        given = {"description": task.description, "subagent_type": task.subagent_type}
        progress.start()
        try:
            yield Prepared(
                given,
                _config_for(task, record.config),
                lambda value: self._answer(task, record, value),
            )
        except BaseException as error:
            # One that waits for a human has not failed: it runs again when the graph is resumed.
            if not isinstance(error, GraphBubbleUp) and not is_invalid_resume(error):
                cancelled = isinstance(error, asyncio.CancelledError)
                progress.error(ToolError("cancelled") if cancelled else error)
            raise
        progress.complete()

    def _answer(self, task: TaskInput, record: Record, value: Any) -> Any:
        # Deep Agents' tool answers with an update of the state; plain text is its way to refuse.
        if self._is_deep and isinstance(record.value, str):
            raise ToolError(record.value)
        if task.response_schema is None or not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ToolError(
                f"the answer of {task.subagent_type!r} is not of the shape that responseSchema "
                f"asks for: {value[:_MAX_SHOWN]}"
            ) from None


def _config_for(task: TaskInput, config: RunnableConfig) -> RunnableConfig:
    """The configuration of the call, with the answer's shape where Deep Agents looks for it."""
    if task.response_schema is None:
        return config
    asked = config.copy()
    asked["configurable"] = {
        **(config.get("configurable") or {}),
        FORMAT_KEY: answer_format(task.response_schema),
    }
    return asked
