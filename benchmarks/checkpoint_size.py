"""What a conversation's state costs in the checkpointer, beside langchain-quickjs.

    python -m benchmarks.checkpoint_size [--turns 20] [--megabytes 5]

The first turn makes the data, each other turn appends to a small list. Printed: the size of the
SQLite file after the turns, and the time of a turn. The peer is left out where it is missing.
"""

import argparse
import importlib
import importlib.util
import pathlib
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver

from qjs_pool.middleware import CodeInterpreterMiddleware

_MAKE = """var data = [];
const row = () => Array.from({ length: 6 }, Math.random).join("").slice(0, 100);
for (let size = 0; size < %d; size += 100) data.push(row());
var log = []; data.length"""
_CHANGE = "log.push(data[log.length]); log.length"


class Scripted(BaseChatModel):
    """Says its lines; no network."""

    lines: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **more: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=next(self.lines))])


def _script(turns: int, size_bytes: int) -> Iterator[AIMessage]:
    for turn in range(turns):
        code = _CHANGE if turn else _MAKE % size_bytes
        yield AIMessage("", tool_calls=[{"name": "eval", "args": {"code": code}, "id": f"c{turn}"}])
        yield AIMessage("done")


def measure(make: Callable[[], Any], turns: int, size_bytes: int) -> tuple[int, float]:
    """Bytes of the checkpoints, and the median seconds of a turn after the first."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "checkpoints.db")
        connection = sqlite3.connect(path, check_same_thread=False)
        agent: Any = create_agent(
            Scripted(lines=_script(turns, size_bytes)), [], middleware=[make()],
            checkpointer=SqliteSaver(connection),
        )  # fmt: skip
        times = []
        for _ in range(turns):
            started = time.perf_counter()
            agent.invoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "t"}})
            times.append(time.perf_counter() - started)
        connection.commit()
        connection.close()
        sizes = (file.stat().st_size for file in pathlib.Path(folder).iterdir())
        return sum(sizes), statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.checkpoint_size", description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--megabytes", type=float, default=5)
    args = parser.parse_args()
    makers: dict[str, Callable[[], Any]] = {
        "qjs-pool": lambda: CodeInterpreterMiddleware(timeout=30.0),
        "qjs-pool, park=0": lambda: CodeInterpreterMiddleware(timeout=30.0, park=0),
    }
    if importlib.util.find_spec("langchain_quickjs") is not None:
        peer: Any = importlib.import_module("langchain_quickjs")
        makers["langchain-quickjs"] = lambda: peer.CodeInterpreterMiddleware(timeout=30.0)
    for name, make in makers.items():
        size_bytes, turn_s = measure(make, args.turns, int(args.megabytes * 1e6))
        print(f"{name}: {size_bytes / 1e6:.1f} MB after {args.turns} turns, {turn_s:.3f} s a turn")


if __name__ == "__main__":
    main()
