"""The order of a turn's steps, and where each leads. No model, no tool, no clock: steps only.

    before_agent... ─► before_model... ─► model ─► after_model... ─┬─► after_agent... ─► end
                       ▲                                           │
                       └────────────────── tools ◄── calls to make ┘

`{"jump_to": "model"}` leads to the first before_model, "end" to the first after_agent.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from .hooks import (
    AFTER_AGENT,
    AFTER_MODEL,
    BEFORE_AGENT,
    BEFORE_MODEL,
    Answer,
    Middleware,
    with_hook,
)
from .state import MESSAGES, State

MODEL: Final = "model"
TOOLS: Final = "tools"
STOP_REASON: Final = "stop_reason"
MAX_ITERATIONS: Final = "max_iterations"


class HookStep(NamedTuple):
    """Run a hook."""

    middleware: Middleware
    hook: str

    @property
    def node(self) -> str:
        return f"{self.middleware.name}.{self.hook}"


class ModelStep(NamedTuple):
    """Call the model."""

    node: str = MODEL


class ToolsStep(NamedTuple):
    """Make these calls."""

    calls: Sequence[ToolCall]
    node: str = TOOLS


class SayStep(NamedTuple):
    """Take that answer as it is."""

    answer: Answer
    node: str = MODEL


Step = HookStep | ModelStep | ToolsStep | SayStep
# After each step comes the state that it led to, and where the step itself says to go on.
Steps = Generator[Step, tuple[State, str | None], None]


class Plan:
    """The steps of an agent's turns."""

    def __init__(self, middlewares: Sequence[Middleware], max_iterations: int | None) -> None:
        self._hooks = {
            hook: with_hook(middlewares, hook)
            for hook in (BEFORE_AGENT, BEFORE_MODEL, AFTER_MODEL, AFTER_AGENT)
        }
        self._max_iterations = max_iterations

    def steps(self, state: State) -> Steps:
        """The steps of one turn from that state."""
        iterations = 0
        state, jump = yield from self._chain(BEFORE_AGENT, state)
        place = jump or MODEL
        while place != "end":
            if place == TOOLS:
                state, jump = yield ToolsStep(pending_calls(state))
                place = jump or MODEL
                continue
            if iterations == self._max_iterations:
                yield SayStep(_stopped(iterations))
                break
            iterations += 1
            state, jump = yield from self._chain(BEFORE_MODEL, state)
            if jump is None:
                state, jump = yield ModelStep()
                state, jump = yield from self._chain(AFTER_MODEL, state)
                jump = jump or _after_model(state)
            place = jump
        yield from self._chain(AFTER_AGENT, state)

    def _chain(
        self, hook: str, state: State
    ) -> Generator[Step, tuple[State, str | None], tuple[State, str | None]]:
        """One kind of hook, until one jumps."""
        for middleware in self._hooks[hook]:
            state, jump = yield HookStep(middleware, hook)
            if jump is not None:
                return state, jump
        return state, None


def pending_calls(state: State) -> list[ToolCall]:
    """The tool calls of the last AIMessage that nothing behind it answers."""
    _, pending = _last_calls(state)
    return pending


def _last_calls(state: State) -> tuple[int, list[ToolCall]]:
    """How many calls the last AIMessage has, and which are pending."""
    answered = set()
    for message in reversed(state[MESSAGES]):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            calls = message.tool_calls
            return len(calls), [call for call in calls if call["id"] not in answered]
    return 0, []


def _after_model(state: State) -> str:
    made, pending = _last_calls(state)
    if pending:
        return TOOLS
    # All answered: a hook has done it, and the model has not seen it yet.
    return MODEL if made else "end"


def _stopped(iterations: int) -> Answer:
    message: Any = AIMessage(
        f"Stopped after {iterations} model calls without a final answer.",
        response_metadata={STOP_REASON: MAX_ITERATIONS},
    )
    return Answer([{MESSAGES: [message]}])
