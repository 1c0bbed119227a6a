"""The hooks of an agent's middlewares: which there are, in what order, and what they may answer.

Hooks around a turn and a model call run one after another; wrappers are layers, the first
middleware's outermost. An error that a hook raises keeps its type and says whose hook it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.runnables.config import run_in_executor

from ..seam import AgentMiddleware, Command, GraphBubbleUp
from .state import JUMP

Middleware = AgentMiddleware[Any, Any, Any]
Update = Mapping[str, Any]

BEFORE_AGENT: Final = "before_agent"
BEFORE_MODEL: Final = "before_model"
AFTER_MODEL: Final = "after_model"
AFTER_AGENT: Final = "after_agent"
MODEL_CALL: Final = "wrap_model_call"
TOOL_CALL: Final = "wrap_tool_call"

_IN_REVERSE: Final = (AFTER_MODEL, AFTER_AGENT)
TARGETS: Final = ("end", "model", "tools")
_ENDS: Final = ("end", "__end__")  # as a Command for a graph spells it, too


class InterruptRefused(GraphBubbleUp):
    """`interrupt()` was called. It bubbles up, for a program must not be able to catch it."""

    def __init__(self) -> None:
        super().__init__(
            "interrupt() needs a graph with a checkpointer, and this loop has none: "
            "use langchain.agents.create_agent"
        )


class Answer(NamedTuple):
    """What a step brought: updates of the state, in order, and where to go on, None for "ahead"."""

    updates: Sequence[Update | None]
    jump: str | None = None


def checked_middlewares(middlewares: Sequence[Any]) -> list[Middleware]:
    """The middlewares of an agent.

    Raises:
        TypeError: one is none; ValueError: two have the same name.
    """
    names = set()
    for one in middlewares:
        if not isinstance(one, AgentMiddleware):
            raise TypeError(f"middleware must be AgentMiddleware objects, not {one!r}")
        if one.name in names:
            raise ValueError(f"two middlewares have the name {one.name!r}; names must differ")
        names.add(one.name)
    return list(middlewares)


def has_hook(middleware: Middleware, hook: str) -> bool:
    """Whether it overrides that hook, in either form."""
    return _overrides(middleware, hook) or _overrides(middleware, f"a{hook}")


def with_hook(middlewares: Sequence[Middleware], hook: str) -> list[Middleware]:
    """Those which override that hook, in the order in which it runs."""
    those = [one for one in middlewares if has_hook(one, hook)]
    return those[::-1] if hook in _IN_REVERSE else those


def _overrides(middleware: Middleware, method: str) -> bool:
    return getattr(type(middleware), method) is not getattr(AgentMiddleware, method)


def run_hook(middleware: Middleware, hook: str, state: Any, runtime: Any) -> Answer:
    """Run one of the four hooks that are no wrappers."""
    with blamed(middleware, hook):
        if not _overrides(middleware, hook):
            raise NotImplementedError(f"there is a{hook} only: use ainvoke or astream")
        return _answer(middleware, hook, getattr(middleware, hook)(state, runtime))


async def arun_hook(middleware: Middleware, hook: str, state: Any, runtime: Any) -> Answer:
    """As `run_hook`; what is there in sync form only runs in a thread."""
    with blamed(middleware, hook):
        if _overrides(middleware, f"a{hook}"):
            returned = await getattr(middleware, f"a{hook}")(state, runtime)
        else:
            returned = await run_in_executor(None, getattr(middleware, hook), state, runtime)
        return _answer(middleware, hook, returned)


def _answer(middleware: Middleware, hook: str, returned: Any) -> Answer:
    if returned is None:
        return Answer([None])
    update, jump = returned, None
    if isinstance(returned, Command):
        update, jump = command_parts(returned)
    if not isinstance(update, Mapping):
        raise TypeError(f"it returned {type(returned).__name__}, not a dict of state or None")
    jump = update.get(JUMP) or jump
    if jump is not None:
        _check_jump(middleware, hook, jump)
    return Answer([{key: value for key, value in update.items() if key != JUMP} or None], jump)


def _check_jump(middleware: Middleware, hook: str, jump: Any) -> None:
    where = f"{middleware.name}.{hook} jumps to {jump!r}"
    if jump not in TARGETS:
        raise ValueError(f"{where}; it can only be to 'end', 'model' or 'tools'")
    if hook == AFTER_AGENT:
        raise ValueError(f"{where}, but the turn is over: there is nothing to jump to")
    methods = (getattr(type(middleware), name) for name in (hook, f"a{hook}"))
    declared = {target for one in methods for target in getattr(one, "__can_jump_to__", None) or ()}
    if jump not in declared:
        raise ValueError(f"{where} without @hook_config(can_jump_to=[{jump!r}])")


def command_parts(command: Command[Any]) -> tuple[dict[str, Any], str | None]:
    """The update and the target of a command.

    Raises:
        ValueError: it is for another graph, resumes something, or goes where the loop has nothing.
        TypeError: its update is no dict.
    """
    if command.graph is not None or command.resume is not None:
        raise ValueError("a Command of graph= or resume= is for a graph, and there is none")
    update = {} if command.update is None else command.update
    if isinstance(update, (list, tuple)) and all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in update
    ):
        update = dict(update)
    if not isinstance(update, Mapping):
        raise TypeError(f"a Command's update must be a dict, not {type(update).__name__}")
    goto: Any = command.goto
    if isinstance(goto, (list, tuple)):
        if len(goto) > 1:
            raise ValueError(f"a Command can go to one place, not to {goto!r}")
        goto = goto[0] if goto else None
    if goto in _ENDS:
        goto = "end"
    if goto is not None and goto not in TARGETS:
        raise ValueError(f"a Command can go to 'end', 'model' or 'tools', not to {goto!r}")
    return dict(update), goto


def is_interrupt(error: BaseException) -> bool:
    """Whether that is what langgraph's `interrupt()` raises where no graph runs."""
    return isinstance(error, KeyError) and error.args == ("__pregel_scratchpad",)


@contextlib.contextmanager
def blamed(
    middleware: Middleware, hook: str, passed: Sequence[BaseException] = ()
) -> Iterator[None]:
    """Errors from within say whose they are, but for those that `passed` through it."""
    try:
        yield
    except GraphBubbleUp:
        raise
    except Exception as error:
        if is_interrupt(error):
            raise InterruptRefused from error
        if not any(error is other for other in passed):
            error.add_note(f"raised by the hook {hook} of the middleware {middleware.name}")
        raise
