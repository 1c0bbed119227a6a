"""Real agents of every kind around a scripted chat model; no network."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from qjs_pool import Limits, Pool

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, ToolMessage

    from qjs_pool.middleware import CodeInterpreterMiddleware

_ids = itertools.count(1)
# Options that make a difference to the pool itself.
_OF_A_POOL = {"pool", "memory_limit", "max_stack_size", "clock"}


class Scripted:
    """Builds agents and scripts, and reads what came out."""

    def __init__(self, pool: Pool) -> None:
        self.opened: list[CodeInterpreterMiddleware[Any, Any]] = []
        self._pool = pool

    def middleware(self, **options: Any) -> CodeInterpreterMiddleware[Any, Any]:
        """A middleware that is closed after the test.

        On a pool that all tests share, as far as the options allow; `pool=None` gives it its own.
        """
        from qjs_pool.middleware import CodeInterpreterMiddleware

        if not _OF_A_POOL & options.keys():
            options["pool"] = self._pool
        middleware: CodeInterpreterMiddleware[Any, Any] = CodeInterpreterMiddleware(**options)
        self.opened.append(middleware)
        return middleware

    @staticmethod
    def model(script: Sequence[AIMessage], asked: list[Any] | None = None) -> Any:
        """A chat model that says the script's messages, and notes what it was asked."""
        from langchain_core.language_models.chat_models import BaseChatModel
        from langchain_core.outputs import ChatGeneration, ChatResult

        lines = iter(script)
        heard = [] if asked is None else asked

        class ScriptedModel(BaseChatModel):
            @property
            def _llm_type(self) -> str:
                return "scripted"

            def bind_tools(self, tools: Any, **more: Any) -> Any:
                return self

            def _generate(
                self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
            ) -> ChatResult:
                heard.append(messages)
                line = next(lines, None)
                if line is None:
                    raise LookupError("the script is over")
                return ChatResult(generations=[ChatGeneration(message=line)])

        return ScriptedModel()

    @staticmethod
    def evals(*codes: str, tool_name: str = "eval") -> AIMessage:
        """One model message that calls the tool once per program."""
        from langchain_core.messages import AIMessage

        return AIMessage(
            "",
            tool_calls=[
                {"name": tool_name, "args": {"code": code}, "id": f"call{next(_ids)}"}
                for code in codes
            ],
        )

    def turn(self, *steps: str | AIMessage) -> list[AIMessage]:
        """A turn of the script: programs one after another, then the final word."""
        from langchain_core.messages import AIMessage

        told = [self.evals(step) if isinstance(step, str) else step for step in steps]
        return [*told, AIMessage("done")]

    def agent(
        self,
        script: Sequence[AIMessage],
        *middleware: Any,
        tools: Sequence[Any] = (),
        kind: str = "agent",
        asked: list[Any] | None = None,
        **more: Any,
    ) -> Any:
        """An agent of LangChain ("agent"), of Deep Agents ("deep") or of our own loop ("loop")."""
        model = self.model(script, asked)
        if kind == "loop":
            from qjs_pool.middleware.agent import create_agent as create_own

            return create_own(model, list(tools), middleware=list(middleware), **more)
        if kind == "deep":
            deepagents = pytest.importorskip("deepagents")
            return deepagents.create_deep_agent(
                model=model, tools=list(tools), middleware=list(middleware), **more
            )
        from langchain.agents import create_agent

        return create_agent(model, list(tools), middleware=list(middleware), **more)

    @staticmethod
    def answers(state: Any, tool_name: str = "eval") -> list[ToolMessage]:
        """The tool's messages, in the order of the conversation."""
        from langchain_core.messages import ToolMessage

        return [
            message
            for message in state["messages"]
            if isinstance(message, ToolMessage) and message.name == tool_name
        ]

    def texts(self, state: Any) -> list[str]:
        """What those messages say."""
        return [str(message.content) for message in self.answers(state)]


@pytest.fixture(scope="session")
def shared_pool() -> Iterator[Pool]:
    # Of the limits those that the kernel enforces are a new middleware's own; the others are its
    # sessions' to narrow.
    limits = Limits(
        memory=64 << 20, cpu=None, wall=None, host_calls=None, result_chars=1 << 20,
        console_chars=1 << 20, snapshot_bytes=None,
    )  # fmt: skip
    with Pool(limits=limits) as pool:
        yield pool


@pytest.fixture
def scripted(shared_pool: Pool) -> Iterator[Scripted]:
    made = Scripted(shared_pool)
    yield made
    for middleware in made.opened:
        middleware.close()


@pytest.fixture
def run(scripted: Scripted) -> Callable[..., list[str]]:
    """Run programs, one eval each, in one turn of a fresh agent; the texts of the answers."""

    def run(*programs: str, tools: Sequence[Any] = (), **options: Any) -> list[str]:
        if tools:
            options.setdefault("ptc", ["*"])
        agent = scripted.agent(
            scripted.turn(*programs), scripted.middleware(**options), tools=tools
        )
        return scripted.texts(agent.invoke(question()))

    return run


def question(text: str = "go") -> dict[str, Any]:
    """The input of a turn."""
    return {"messages": [("user", text)]}


@pytest.fixture
def ask() -> Callable[..., dict[str, Any]]:
    return question
