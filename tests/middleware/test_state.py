"""The REPL's state in the graph's: across turns, branches, restarts, failures and damage."""

from __future__ import annotations

import asyncio
import copy
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from qjs_pool.middleware.saved import SNAPSHOT_KEY, merged, state_channel

Ask = Callable[..., dict[str, Any]]
KINDS = ["agent", "deep"]


def thread(thread_id: str = "t", **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, **more}}


def entry(agent: Any, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the graph's state has of the REPL."""
    channel: dict[str, Any] = agent.get_state(config or thread()).values.get(SNAPSHOT_KEY) or {}
    return dict(channel.get("eval") or {})


class Turns:
    """Turns of one conversation, each by a middleware of its own, as if the host had restarted."""

    def __init__(self, scripted: Any, ask: Ask, saver: Any, kind: str = "agent") -> None:
        self.scripted, self.ask, self.saver, self.kind = scripted, ask, saver, kind
        self.agent: Any = None

    def make(self, *programs: Any, **options: Any) -> Any:
        self.agent = self.scripted.agent(
            self.scripted.turn(*programs), self.scripted.middleware(**options),
            kind=self.kind, checkpointer=self.saver,
        )  # fmt: skip
        return self.agent

    def __call__(self, *programs: Any, config: Any = None, **options: Any) -> list[str]:
        state = self.make(*programs, **options).invoke(self.ask(), config or thread())
        return self.scripted.texts(state)[-len(programs) :]


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite")
    connection = sqlite3.connect(tmp_path / "checkpoints.db", check_same_thread=False)
    yield sqlite.SqliteSaver(connection)
    connection.close()


@pytest.fixture
def turns(scripted: Any, ask: Ask, saver: Any) -> Turns:
    return Turns(scripted, ask, saver)


@pytest.fixture
def in_memory(scripted: Any, ask: Ask) -> Turns:
    return Turns(scripted, ask, InMemorySaver())


@pytest.mark.parametrize("kind", KINDS)
def test_state_with_functions_goes_on_after_a_restart(
    scripted: Any, ask: Ask, saver: Any, kind: str
) -> None:
    turn = Turns(scripted, ask, saver, kind)
    turn("const list = [1, 2]; function total() { return list.reduce((a, b) => a + b) }")
    assert turn("list.push(3); total()") == ["<result>6</result>"]
    assert turn("total() * 10", "total()") == ["<result>60</result>", "<result>6</result>"]


def test_state_goes_on_after_a_restart_in_an_event_loop(in_memory: Turns) -> None:
    async def run() -> list[str]:
        await in_memory.make("var n = 1").ainvoke(in_memory.ask(), thread())
        state = await in_memory.make("n += 1").ainvoke(in_memory.ask(), thread())
        return list(in_memory.scripted.texts(state))

    assert asyncio.run(run())[-1] == "<result>2</result>"


def test_a_closure_goes_on_while_the_worker_is_parked_and_is_a_tombstone_afterwards(
    scripted: Any, ask: Ask
) -> None:
    programs = ["var next = (() => { let n = 0; return () => ++n })(); next()", "next()"]
    script = [line for program in programs for line in scripted.turn(program)]
    saver = InMemorySaver()
    agent = scripted.agent(script, scripted.middleware(), checkpointer=saver)
    agent.invoke(ask(), thread())
    assert scripted.texts(agent.invoke(ask(), thread()))[-1] == "<result>2</result>"
    (text,) = Turns(scripted, ask, saver)("next()")
    assert "was not restored because it is not serializable" in text


def test_park_zero_keeps_no_worker_and_the_state(scripted: Any, ask: Ask) -> None:
    script = [*scripted.turn("var x = 1"), *scripted.turn("x + 1")]
    middleware = scripted.middleware(park=0, pool=None)
    agent = scripted.agent(script, middleware, checkpointer=InMemorySaver())
    agent.invoke(ask(), thread())
    assert middleware._evaluator.sandbox.pool.stats()["sessions"] == 0
    assert scripted.texts(agent.invoke(ask(), thread()))[-1] == "<result>2</result>"


def test_a_parked_worker_goes_by_itself_when_its_time_is_over(scripted: Any, ask: Ask) -> None:
    script = [*scripted.turn("var x = 1"), *scripted.turn("x + 1")]
    middleware = scripted.middleware(park=0.2, pool=None)
    agent = scripted.agent(script, middleware, checkpointer=InMemorySaver())
    agent.invoke(ask(), thread())
    deadline = time.monotonic() + 10
    while middleware._evaluator.sandbox.pool.stats()["sessions"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert middleware._evaluator.sandbox.pool.stats()["sessions"] == 0
    assert scripted.texts(agent.invoke(ask(), thread()))[-1] == "<result>2</result>"


def test_a_session_stays_within_a_turn_even_if_none_is_parked(scripted: Any, ask: Ask) -> None:
    saver = InMemorySaver()
    turn = Turns(scripted, ask, saver)
    programs = ["var next = (() => { let n = 0; return () => ++n })(); next()", "next()"]
    assert turn(*programs, park=0) == ["<result>1</result>", "<result>2</result>"]


def test_a_large_state_does_not_stall_the_event_loop(in_memory: Turns) -> None:
    make = "var d = []; for (let i = 0; i < 60000; i++) d.push(Math.random() + 'x'.repeat(80)); 1"
    stalls: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            stalls.append(time.monotonic() - before)

    async def run() -> Any:
        await in_memory.make("1").ainvoke(in_memory.ask(), thread())  # imports and first starts
        stalls.clear()
        ticker = asyncio.create_task(tick())
        await in_memory.make(make).ainvoke(in_memory.ask(), thread())
        state = await in_memory.make("d.length").ainvoke(in_memory.ask(), thread())
        ticker.cancel()
        return state

    assert in_memory.scripted.texts(asyncio.run(run()))[-1] == "<result>60000</result>"
    # Well under what hashing, packing or a worker's answer in the loop would take; the machine
    # may be busy.
    assert max(stalls) < 0.5
    assert sorted(stalls)[int(len(stalls) * 0.98)] < 0.05


def test_past_max_parked_the_least_recently_used_worker_goes_and_no_state(
    scripted: Any, ask: Ask
) -> None:
    script = [
        *(line for n in range(3) for line in scripted.turn(f"var n = {n}")),
        *scripted.turn("n"),
    ]
    middleware = scripted.middleware(max_parked=2, pool=None)
    agent = scripted.agent(script, middleware, checkpointer=InMemorySaver())
    for n in range(3):
        agent.invoke(ask(), thread(f"t{n}"))
    assert middleware._evaluator.sandbox.pool.stats()["sessions"] == 2
    assert scripted.texts(agent.invoke(ask(), thread("t0")))[-1] == "<result>0</result>"


@pytest.mark.parametrize("park", [0, 300])
def test_a_branch_from_an_older_checkpoint_has_the_state_of_that_checkpoint(
    scripted: Any, ask: Ask, saver: Any, park: float
) -> None:
    programs = ["var log = ['a']", "log.push('b')", "log.push('c'); log.join()", "log.join()"]
    script = [line for program in programs for line in scripted.turn(program)]
    script += scripted.turn("log.push('e'); log.join()")
    agent = scripted.agent(script, scripted.middleware(park=park), checkpointer=saver)
    agent.invoke(ask(), thread())
    first = agent.get_state(thread()).config
    agent.invoke(ask(), thread())
    second = agent.get_state(thread()).config
    # Two branches from the first turn's end, then one from the second's.
    assert scripted.texts(agent.invoke(ask(), first))[-1] == "<result>a,c</result>"
    assert scripted.texts(agent.invoke(ask(), first))[-1] == "<result>a</result>"
    assert scripted.texts(agent.invoke(ask(), second))[-1] == "<result>a,b,e</result>"


def test_a_branch_from_before_the_first_eval_starts_empty(in_memory: Turns) -> None:
    agent = in_memory.agent = in_memory.scripted.agent(
        [*in_memory.scripted.turn("var x = 1"), *in_memory.scripted.turn("typeof x")],
        in_memory.scripted.middleware(), checkpointer=in_memory.saver,
    )  # fmt: skip
    agent.invoke(in_memory.ask(), thread())
    first = list(agent.get_state_history(thread()))[-1].config
    state = agent.invoke(in_memory.ask(), first)
    assert in_memory.scripted.texts(state)[-1] == "<result>undefined</result>"


def test_parallel_evals_of_one_message_save_what_all_of_them_left(turns: Turns) -> None:
    message = turns.scripted.evals("var a = 1; var gone = 5", "var b = a + 1; delete gone")
    turns(message)
    assert turns("[a, b, typeof gone].join()") == ["<result>1,2,undefined</result>"]


def test_a_turn_without_an_eval_starts_no_worker_and_writes_nothing(in_memory: Turns) -> None:
    in_memory("var x = 1")
    before = entry(in_memory.agent)
    in_memory.make().invoke(in_memory.ask(), thread())
    assert entry(in_memory.agent) == before
    assert in_memory.scripted.opened[-1]._evaluator.sandbox._own is None


def test_what_did_not_change_is_not_written_again(scripted: Any, ask: Ask) -> None:
    saver = InMemorySaver()
    turn = Turns(scripted, ask, saver)
    turn("var noise = ''; for (let i = 0; i < 9000; i++) noise += Math.random(); var n = 0")
    size = _written_bytes(saver)
    assert size > 50_000
    turn("n += 1")
    turn("1 + 1")
    assert _written_bytes(saver) - size < 2_000
    assert turn("noise.length > 50000 && n") == ["<result>1</result>"]


def _written_bytes(saver: InMemorySaver) -> int:
    """Of the REPL's state."""
    blobs = sum(len(data) for key, (_, data) in saver.blobs.items() if key[2] == SNAPSHOT_KEY)
    writes = (w for ws in saver.writes.values() for w in ws.values() if w[1] == SNAPSHOT_KEY)
    return blobs + sum(len(write[2][1]) for write in writes)


def test_a_state_that_was_dropped_is_dropped_from_the_channel(in_memory: Turns) -> None:
    in_memory("var big = Array.from({length: 20000}, () => Math.random())")
    assert sum(map(len, entry(in_memory.agent)["chunks"].values())) > 100_000
    in_memory("big = null")
    assert sum(map(len, entry(in_memory.agent)["chunks"].values())) < 1000


@pytest.mark.parametrize("restart", [False, True])
def test_a_run_that_fails_after_an_eval_keeps_that_evals_state(
    scripted: Any, ask: Ask, saver: Any, restart: bool
) -> None:
    middleware = scripted.middleware()
    failing = scripted.agent([scripted.evals("var x = 'kept'")], middleware, checkpointer=saver)
    with pytest.raises(LookupError):  # the script, and with it the run, ends within the turn
        failing.invoke(ask(), thread())
    middleware = scripted.middleware() if restart else middleware
    agent = scripted.agent(scripted.turn("x"), middleware, checkpointer=saver)
    assert scripted.texts(agent.invoke(ask(), thread()))[-1] == "<result>kept</result>"


def test_a_middleware_that_drops_the_state_update_costs_no_state_within_the_process(
    scripted: Any, ask: Ask
) -> None:
    from langchain.agents.middleware import AgentMiddleware

    class Unwrapping(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            answer = handler(request)
            return answer if isinstance(answer, ToolMessage) else answer.update["messages"][0]

    saver = InMemorySaver()
    agent = scripted.agent(
        scripted.turn("var x = 1", "x += 1", "x"), Unwrapping(), scripted.middleware(),
        checkpointer=saver,
    )  # fmt: skip
    assert scripted.texts(agent.invoke(ask(), thread()))[-1] == "<result>2</result>"
    assert Turns(scripted, ask, saver)("x") == ["<result>2</result>"]


def test_a_state_over_the_limit_is_dropped_with_a_warning_and_the_model_is_told(
    in_memory: Turns,
) -> None:
    with pytest.warns(RuntimeWarning, match="takes more than 2000 bytes"):
        in_memory("var keep = 42; var big = 'x'.repeat(5000); keep", max_snapshot_bytes=2000)
    first, second = in_memory("typeof keep", "1", max_snapshot_bytes=2000)
    assert first.startswith("<result>undefined</result>\n<note>the REPL's state is lost")
    assert second == "<result>1</result>"


def test_a_signed_snapshot_needs_one_of_the_keys_and_its_own_thread(in_memory: Turns) -> None:
    old, new = "a secret of yesterday", b"a secret of today"
    in_memory("var x = 7", snapshot_signing_key=old)
    assert in_memory("x", snapshot_signing_key=[new, old]) == ["<result>7</result>"]
    stolen = in_memory.agent.get_state(thread()).values[SNAPSHOT_KEY]
    with pytest.warns(RuntimeWarning, match="signature does not fit"):
        (text,) = in_memory("typeof x", snapshot_signing_key="another secret")
    assert text.startswith("<result>undefined</result>\n<note>the REPL's state is lost")
    agent = in_memory.make("typeof x", snapshot_signing_key=new)
    agent.update_state(thread("other"), {SNAPSHOT_KEY: stolen}, as_node="model")
    with pytest.warns(RuntimeWarning, match="signature does not fit"):
        state = agent.invoke(in_memory.ask(), thread("other"))
    assert in_memory.scripted.texts(state)[-1].startswith("<result>undefined</result>")


def test_an_unsigned_snapshot_is_refused_when_there_is_a_key(in_memory: Turns) -> None:
    in_memory("var x = 7")
    with pytest.warns(RuntimeWarning, match="not signed"):
        (text,) = in_memory("typeof x", snapshot_signing_key="a secret")
    assert text.startswith("<result>undefined</result>")


def _flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "manifest flipped": lambda e: {**e, "manifest": _flip(e["manifest"])},
    "manifest cut": lambda e: {**e, "manifest": e["manifest"][:20]},
    "manifest of another kind": lambda e: {**e, "manifest": 5},
    "manifest of a later version": lambda e: {
        **e, "manifest": e["manifest"][:4] + b"\x09" + e["manifest"][5:]
    },
    "chunk flipped": lambda e: {**e, "chunks": {n: _flip(c) for n, c in e["chunks"].items()}},
    "chunks missing": lambda e: {**e, "chunks": {}},
    "chunks of another kind": lambda e: {**e, "chunks": [1, 2]},
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_a_warning_and_an_empty_repl(
    in_memory: Turns, damage: str, recwarn: pytest.WarningsRecorder
) -> None:
    in_memory("var x = 7")
    damaged = DAMAGES[damage](copy.deepcopy(entry(in_memory.agent)))
    from langgraph.types import Overwrite

    agent = in_memory.make("typeof x", "var y = 1")
    agent.update_state(thread(), {SNAPSHOT_KEY: Overwrite({"eval": damaged})}, as_node="model")
    texts = in_memory.scripted.texts(agent.invoke(in_memory.ask(), thread()))
    assert texts[-2].startswith("<result>undefined</result>\n<note>the REPL's state is lost")
    assert "note" not in texts[-1]
    assert len([w for w in recwarn if "starts empty" in str(w.message)]) == 1
    assert in_memory("y") == ["<result>1</result>"]


@pytest.mark.parametrize("garbage", [1, "x", [], {"eval": 5}, {"eval": {"seq": "a"}}])
def test_garbage_in_the_channel_is_no_state_and_is_told(in_memory: Turns, garbage: Any) -> None:
    from langgraph.types import Overwrite

    agent = in_memory.make("var x = 1; x")
    agent.update_state(thread(), {SNAPSHOT_KEY: Overwrite(garbage)}, as_node="model")
    with pytest.warns(RuntimeWarning, match="malformed. The REPL starts empty"):
        agent.invoke(in_memory.ask(), thread())
    assert in_memory("x + 1") == ["<result>2</result>"]


def test_nothing_in_the_channel_is_no_state(in_memory: Turns) -> None:
    from langgraph.types import Overwrite

    agent = in_memory.make("var x = 1; x")
    agent.update_state(thread(), {SNAPSHOT_KEY: Overwrite(None)}, as_node="model")
    agent.invoke(in_memory.ask(), thread())
    assert in_memory("x + 1") == ["<result>2</result>"]


@pytest.mark.parametrize("where", ["folder", "store"])
def test_with_a_store_the_state_holds_hashes_only(
    in_memory: Turns, tmp_path: Path, where: str
) -> None:
    store: Any = tmp_path / "blobs" if where == "folder" else InMemoryStore()
    in_memory("var noise = Array.from({length: 5000}, () => Math.random())", snapshot_store=store)
    held = entry(in_memory.agent)
    assert "chunks" not in held
    assert "manifest" not in held
    assert len(held["ref"]) < 200
    assert in_memory("noise.length", snapshot_store=store) == ["<result>5000</result>"]


def test_a_store_works_in_an_event_loop(in_memory: Turns) -> None:
    store = InMemoryStore()

    async def run() -> Any:
        first = in_memory.make("var x = 3", snapshot_store=store)
        await first.ainvoke(in_memory.ask(), thread())
        return await in_memory.make("x", snapshot_store=store).ainvoke(in_memory.ask(), thread())

    assert in_memory.scripted.texts(asyncio.run(run()))[-1] == "<result>3</result>"


def test_a_store_that_lost_its_bytes_is_a_warning_and_an_empty_repl(
    in_memory: Turns, tmp_path: Path
) -> None:
    in_memory("var x = 1", snapshot_store=tmp_path)
    for file in [path for path in tmp_path.rglob("*") if path.is_file()]:
        file.write_bytes(b"something else")
    with pytest.warns(RuntimeWarning, match="not in the snapshot_store"):
        (text,) = in_memory("typeof x", snapshot_store=tmp_path)
    assert text.startswith("<result>undefined</result>\n<note>the REPL's state is lost")


def test_a_store_whose_files_were_damaged_is_repaired_by_the_next_conversation_in_that_state(
    in_memory: Turns, tmp_path: Path
) -> None:
    in_memory("var x = 1", snapshot_store=tmp_path)
    # As a full disk leaves them, and as a bad one does.
    damages = [lambda data: b"", lambda data: bytes(len(data))]
    for thread_id, damage in zip("bc", damages, strict=True):
        for file in [path for path in tmp_path.rglob("*") if path.is_file()]:
            file.write_bytes(damage(file.read_bytes()))
        in_memory("var x = 1", snapshot_store=tmp_path, config=thread(thread_id))
        again = in_memory("x", snapshot_store=tmp_path, config=thread(thread_id))
        assert again == ["<result>1</result>"]


def test_a_store_that_fails_costs_the_state_and_not_the_run(
    in_memory: Turns, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.warns(RuntimeWarning, match="snapshot_store failed"):
        assert in_memory("var x = 1; x", snapshot_store=in_the_way) == ["<result>1</result>"]


def test_two_middlewares_of_one_agent_keep_their_states_apart(scripted: Any, ask: Ask) -> None:
    saver = InMemorySaver()

    def texts(one: str, two: str) -> tuple[str, str]:
        steps = [scripted.evals(one), scripted.evals(two, tool_name="js")]
        agent = scripted.agent(
            scripted.turn(*steps), scripted.middleware(), scripted.middleware(tool_name="js"),
            checkpointer=saver,
        )  # fmt: skip
        state = agent.invoke(ask(), thread())
        return str(scripted.texts(state)[-1]), str(scripted.answers(state, "js")[-1].content)

    texts("var x = 1", "var x = 2")
    assert texts("x", "x") == ("<result>1</result>", "<result>2</result>")


def test_the_reducer_gives_the_same_however_writes_are_batched() -> None:
    writes = [
        {"eval": {"seq": 1, "head": "a", "at": 1, "manifest": b"m1", "hashes": ["p", "q"],
                  "chunks": {"p": b"P", "q": b"Q"}}},
        {"eval": {"seq": 2, "head": "b"}},
        {"eval": {"seq": 3, "head": "c", "at": 3, "manifest": b"m2", "hashes": ["q", "r"],
                  "chunks": {"r": b"R"}}},
        {"eval": {"seq": 4, "head": "d", "at": 4}},
    ]  # fmt: skip
    whole = merged({}, writes)
    assert whole == {
        "eval": {"seq": 4, "head": "d", "at": 4, "manifest": b"m2", "hashes": ["q", "r"],
                 "chunks": {"q": b"Q", "r": b"R"}}
    }  # fmt: skip
    for cut in range(len(writes)):
        assert merged(merged({}, writes[:cut]), writes[cut:]) == whole


@pytest.mark.parametrize("restart", [False, True])
def test_a_large_state_of_a_run_that_failed_is_there_or_the_model_is_told(
    scripted: Any, ask: Ask, restart: bool
) -> None:
    saver = InMemorySaver()
    middleware = scripted.middleware()
    make = "var d = Array.from({length: 20000}, () => Math.random()); d.length"
    failing = scripted.agent(
        [scripted.evals(make), scripted.evals("d.push(1); d.length")], middleware,
        checkpointer=saver,
    )  # fmt: skip
    with pytest.raises(LookupError):
        failing.invoke(ask(), thread())
    middleware = scripted.middleware() if restart else middleware
    agent = scripted.agent(scripted.turn("d.length", "2"), middleware, checkpointer=saver)
    first, second = scripted.texts(agent.invoke(ask(), thread()))[-2:]
    note = "\n<note>what the last evals changed is lost: their turn did not end</note>"
    assert first == (f"<result>20000</result>{note}" if restart else "<result>20001</result>")
    assert second == "<result>2</result>"


@pytest.mark.parametrize("mode", ["turn", "call"])
def test_other_modes_write_no_state(in_memory: Turns, mode: str) -> None:
    in_memory("var x = 1", mode=mode)
    assert entry(in_memory.agent) == {}


@pytest.mark.parametrize("delta", [True, False])
def test_the_channel_merges_writes_with_and_without_langgraphs_delta_channel(
    monkeypatch: pytest.MonkeyPatch, delta: bool
) -> None:
    if delta:
        pytest.importorskip("langgraph.channels.delta")
    else:
        monkeypatch.setitem(sys.modules, "langgraph.channels.delta", None)
    channel = state_channel()
    channel.update([{"eval": {"seq": 1, "head": "a"}}, {"js": {"seq": 1, "head": "b"}}])
    channel.update([{"eval": {"seq": 2, "head": "c"}}])
    assert channel.get() == {"eval": {"seq": 2, "head": "c"}, "js": {"seq": 1, "head": "b"}}
    assert channel.copy().get() == channel.get()


LARGE = "var big = new Float64Array(3e5).map(Math.random); var kept = 7; big.length"


def test_what_was_dropped_is_not_read_again_in_later_turns(scripted: Any, ask: Ask) -> None:
    saver = InMemorySaver()
    script = [line for code in (LARGE, "kept", "big = null; kept", "kept") for line in
              scripted.turn(code)]  # fmt: skip
    agent = scripted.agent(script, scripted.middleware(), checkpointer=saver)
    for _ in range(3):
        agent.invoke(ask(), thread())
    assert scripted.texts(agent.invoke(ask(), thread()))[-1] == "<result>7</result>"
    config = agent.get_state(thread()).config
    history = saver.get_delta_channel_history(config=config, channels=[SNAPSHOT_KEY])[SNAPSHOT_KEY]
    assert len(repr(history)) < 10_000
    assert Turns(scripted, ask, saver)("[big, kept]") == ["<result>[null, 7]</result>"]


@pytest.mark.parametrize("kind", ["state", "folder", "store"])
def test_large_states_are_hashed_packed_and_stored_outside_of_the_event_loop(
    scripted: Any, ask: Ask, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qjs_pool import snapshots
    from qjs_pool.middleware import continuity, store

    in_loop: list[str] = []

    def watched(module: Any, name: str, counts: Callable[..., Any] = lambda *_: True) -> None:
        real = getattr(module, name)

        def call(*args: Any) -> Any:
            if threading.current_thread() is threading.main_thread() and counts(*args):
                in_loop.append(name)
            return real(*args)

        monkeypatch.setattr(module, name, call)

    watched(snapshots, "take_apart_pieces")
    watched(snapshots, "body_parts")
    watched(continuity, "packed", lambda _, entry: entry.get("chunks"))
    watched(store.FolderStore, "put")
    watched(store, "_boxed")
    watched(store, "_unboxed")
    options: dict[str, Any] = {"folder": {"snapshot_store": tmp_path}, "state": {}}.get(
        kind, {"snapshot_store": InMemoryStore()}
    )
    turn = Turns(scripted, ask, InMemorySaver())

    async def run() -> Any:
        await turn.make(LARGE, **options).ainvoke(ask(), thread())
        return await turn.make("big.length + kept", **options).ainvoke(ask(), thread())

    assert scripted.texts(asyncio.run(run()))[-1] == "<result>300007</result>"
    # The manifest of the store is small: its own way there costs nothing.
    assert set(in_loop) <= {"_boxed", "_unboxed"} if kind == "store" else in_loop == []
