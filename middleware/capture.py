"""Stand-ins for tools that keep what the tool itself returned.

A tool's run gives a message, that is text; the guest is to get the value. So the agent's tool path
is given a stand-in with the tool's name and schema whose `_run` and `_arun` are the tool's own
(bound to it, so that its state is its state), and which notes their value for the call at hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.tools.base import get_all_basemodel_annotations

from qjs_pool.pool_core import PoolCore

from .bound import bound
from .seam import Command, msg_content_output

_NOTHING: Final = object()


class Record:
    """One tool call of an eval."""

    __slots__ = ("_content", "_message", "_shown", "call_id", "config", "ended", "given_up",
                 "index", "pool", "task", "tool_name", "value")  # fmt: skip

    def __init__(
        self, index: int, call_id: str, tool_name: str, config: RunnableConfig, pool: PoolCore
    ) -> None:
        self.index = index
        self.call_id = call_id
        self.tool_name = tool_name
        self.config = config
        self.pool = pool
        self.task: asyncio.Task[Any] | None = None
        self.ended: Future[None] = Future()
        self.given_up = False  # its eval was stopped: nobody waits for what it does
        self.value: Any = _NOTHING
        self._message: Any = None
        self._content: Any = None
        self._shown: Any = None

    @property
    def goes_on(self) -> bool:
        """Whether the call will still end: a task does not once its loop is closed."""
        task = self.task
        return not (self.ended.done() or (task is not None and task.get_loop().is_closed()))

    def begin(self) -> None:
        """The tool is run, perhaps again by a retry."""
        self.value, self._message = _NOTHING, None

    def note(self, message: Any) -> None:
        """What the run gave the agent's tool path."""
        self._message = message
        self._content = getattr(message, "content", None)
        # The tool path itself makes text of a list that is no list of content blocks.
        self._shown = None if self._content is None else msg_content_output(self._content)

    def returned(self, answer: Any) -> bool:
        """Whether `value` is what the answer says: no middleware has replaced or edited it."""
        return (
            self.value is not _NOTHING
            and answer is self._message
            and isinstance(answer, ToolMessage)
            and answer.content in (self._content, self._shown)
            and not _is_envelope(self.value)
        )

    def cancel(self) -> None:
        """Cancel the call, from any thread; one that runs in a thread can't be."""
        task = self.task
        if task is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed, and it with it
                task.get_loop().call_soon_threadsafe(task.cancel)


_RECORD: Final[contextvars.ContextVar[Record | None]] = contextvars.ContextVar(
    "qjs_pool_call", default=None
)


def current_record(record: Record) -> contextlib.AbstractContextManager[None]:
    """Runs of stand-ins in this context are of that call. Threads and tasks inherit it."""
    return bound(_RECORD, record)


def injected_names(tool: BaseTool) -> frozenset[str]:
    """Arguments that the agent supplies, and a caller may not."""
    names = set(getattr(tool, "_injected_args_keys", ()))
    schema = tool.args_schema
    if schema is not None and not isinstance(schema, dict):
        try:
            offered = set(get_all_basemodel_annotations(tool.tool_call_schema))
            names |= set(get_all_basemodel_annotations(schema)) - offered
        except Exception:  # a schema that can't be inspected injects nothing that we know of
            return frozenset(names)
    return frozenset(names)


def capturing(tool: BaseTool) -> BaseTool:
    """A stand-in for the tool."""
    stand_in = tool.model_copy()
    cls = type(stand_in)
    in_thread, in_loop = _only_sync(tool), _only_async(tool)

    def invoke(input: Any, config: RunnableConfig | None = None, **more: Any) -> Any:  # noqa: A002
        record = _RECORD.get()
        config = _as_child(config, record)
        if record is None:
            return cls.invoke(stand_in, input, config, **more)
        record.begin()
        if in_loop:
            output = _in_background(record.pool, cls.ainvoke(stand_in, input, config, **more))
        else:
            try:
                output = cls.invoke(stand_in, input, config, **more)
            except NotImplementedError:
                if cls._arun is BaseTool._arun:
                    raise
                output = _in_background(record.pool, cls.ainvoke(stand_in, input, config, **more))
        record.note(output)
        return output

    async def ainvoke(input: Any, config: RunnableConfig | None = None, **more: Any) -> Any:  # noqa: A002
        record = _RECORD.get()
        config = _as_child(config, record)
        if record is None:
            return await cls.ainvoke(stand_in, input, config, **more)
        record.begin()
        if in_thread:
            # Not in the loop's own executor: its few threads are for everybody, and a tool that
            # never returns would keep one for good.
            output = await _in_thread(
                record.pool, functools.partial(cls.invoke, stand_in, input, config, **more)
            )
        else:
            output = await cls.ainvoke(stand_in, input, config, **more)
        record.note(output)
        return output

    @functools.wraps(tool._run)
    def run(*args: Any, **more: Any) -> Any:
        try:
            return _keep(tool._run(*args, **more), tool)
        except SystemExit as error:
            raise _failed(error) from None

    @functools.wraps(tool._arun)
    async def arun(*args: Any, **more: Any) -> Any:
        try:
            return _keep(await tool._arun(*args, **more), tool)
        except SystemExit as error:
            raise _failed(error) from None

    # On the instance, past Pydantic: the class, its fields and its schema stay the tool's.
    stand_in.__dict__.update(invoke=invoke, ainvoke=ainvoke, _run=run, _arun=arun)
    return stand_in


def _failed(error: SystemExit) -> RuntimeError:
    # Here already: asyncio raises it out of the loop, past whoever awaits the task.
    return RuntimeError(f"the tool raised SystemExit: {error}")


def _keep(value: Any, tool: BaseTool) -> Any:
    record = _RECORD.get()
    if record is not None:
        pair = tool.response_format == "content_and_artifact" and isinstance(value, tuple)
        record.value = value[0] if pair and value else value
    return value


def _is_envelope(value: Any) -> bool:
    if isinstance(value, (ToolMessage, Command)):
        return True
    return isinstance(value, list) and any(
        isinstance(item, (ToolMessage, Command)) for item in value
    )


def _as_child(config: RunnableConfig | None, record: Record | None) -> RunnableConfig | None:
    """The configuration with the eval's run as the parent of what is run."""
    if record is None:
        return config
    if config is None:
        return record.config
    child = config.copy()
    if (callbacks := record.config.get("callbacks")) is not None:
        child["callbacks"] = callbacks
    # The tool path hands on the configuration of the eval, whose interrupts are the eval's.
    child["configurable"] = record.config.get("configurable", {})
    return child


def _only_sync(tool: BaseTool) -> bool:
    if hasattr(tool, "coroutine"):
        return tool.coroutine is None
    return type(tool)._arun is BaseTool._arun


def _only_async(tool: BaseTool) -> bool:
    return hasattr(tool, "coroutine") and getattr(tool, "func", None) is None


def _in_background(pool: PoolCore, run: Coroutine[Any, Any, Any]) -> Any:
    """Run an async tool for a sync caller; its task inherits the caller's context."""
    return asyncio.run_coroutine_threadsafe(run, pool.background.get()).result()


async def _in_thread(pool: PoolCore, run: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():  # cancelled: the thread could not be
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError("the tool raised StopIteration"))
        else:
            future.set_exception(error)

    def job() -> None:
        value, error = None, None
        try:
            value = context.run(run)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    pool.threads.submit(job)
    return await future
