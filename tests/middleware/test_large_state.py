"""Large states in a checkpointer: what its serializer sees, and what is read once they are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Overwrite

from qjs_pool.middleware.saved import SNAPSHOT_KEY, last_write

Ask = Callable[..., dict[str, Any]]
# Random bits: as large when packed.
LARGE = """var big = new Float64Array(150000); var kept = 7;
for (let i = 0; i < big.length; i++) big[i] = Math.random(); big.length"""
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t"}}


class Counting(JsonPlusSerializer):
    """Notes the sizes of what is encoded and decoded; bytes are neither."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        if kind != "bytes":
            self.sizes.append(len(data))
        return kind, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] != "bytes":
            self.sizes.append(len(data[1]))
        return super().loads_typed(data)


def _turns(scripted: Any, ask: Ask, saver: Any, *programs: str) -> list[str]:
    """One turn for each program, by one middleware; the last result of each."""
    script = [line for program in programs for line in scripted.turn(program)]
    agent = scripted.agent(script, scripted.middleware(), checkpointer=saver)
    return [scripted.texts(agent.invoke(ask(), CONFIG))[-1] for _ in programs]


def _read_bytes(saver: InMemorySaver) -> int:
    """How much a turn reads of the REPL's state."""
    newest = saver.get_tuple(CONFIG)
    assert newest is not None
    history = saver.get_delta_channel_history(config=newest.config, channels=[SNAPSHOT_KEY])
    return len(repr(history[SNAPSHOT_KEY]))


def test_no_serializer_sees_a_large_state(scripted: Any, ask: Ask) -> None:
    serde = Counting()
    saver = InMemorySaver(serde=serde)
    assert _turns(scripted, ask, saver, LARGE, "big.length")[-1] == "<result>150000</result>"
    assert _read_bytes(saver) > 1_000_000
    # Restored by another middleware, as after a restart.
    assert _turns(scripted, ask, saver, "big.length + kept") == ["<result>150007</result>"]
    assert max(serde.sizes) < 100_000


def test_a_large_state_that_was_restored_and_dropped_is_not_read_again(
    scripted: Any, ask: Ask
) -> None:
    saver = InMemorySaver()
    _turns(scripted, ask, saver, LARGE)
    assert _turns(scripted, ask, saver, "big = null; kept", "kept")[-1] == "<result>7</result>"
    assert _read_bytes(saver) < 10_000
    assert _turns(scripted, ask, saver, "[big, kept]") == ["<result>[null, 7]</result>"]


def test_a_large_chunk_is_not_written_again_with_a_small_change(scripted: Any, ask: Ask) -> None:
    saver = InMemorySaver()
    _turns(scripted, ask, saver, LARGE)
    before = _read_bytes(saver)
    _turns(scripted, ask, saver, "kept = 8; kept", "kept += 1; kept")
    assert _read_bytes(saver) - before < 10_000
    assert _turns(scripted, ask, saver, "[big.length, kept]") == ["<result>[150000, 9]</result>"]


def _channel(seq: int, chunk: bytes, **more: Any) -> dict[str, Any]:
    entry = {"seq": seq, "at": seq, "hashes": ["a"], "chunks": {"a": chunk}, **more}
    return {SNAPSHOT_KEY: {"eval": entry}}


def test_a_small_state_is_written_whole_after_some_evals_and_a_large_one_is_not() -> None:
    write = {"eval": {"seq": 30, "head": "x"}}
    for seq, chunk, more in (
        (29, b"a" * (2 << 20), {}), (18, b"a", {}), (29, b"a", {"whole": 20}),
    ):  # fmt: skip
        given = {"eval": {"seq": seq + 1, "head": "x"}}
        assert last_write(_channel(seq, chunk, **more), "eval", given, 5) == (given, 5)
    whole, written_bytes = last_write(_channel(29, b"a"), "eval", write, 5)
    assert isinstance(whole, Overwrite)
    assert whole.value["eval"]["whole"] == whole.value["eval"]["seq"] == 30
    assert whole.value["eval"]["chunks"] == {"a": b"a"}
    assert written_bytes == 0
