"""The peers, doing the same as we do wherever they can.

langchain-quickjs runs QuickJS inside the host process, pydantic-monty a Python subset in worker
processes. Both are optional: `pip install langchain-quickjs pydantic-monty`.
"""

import asyncio
import importlib.util
import time
from collections.abc import Callable
from typing import Any

from .timing import Figure, figure, timed

SMALL_OBJECTS = 10_000


class Peer:
    """Measures by key; None for what the peer cannot do."""

    module = ""

    def __init__(self) -> None:
        self._measures: dict[str, Callable[[float], Figure]] = {}

    def available(self) -> bool:
        return importlib.util.find_spec(self.module) is not None

    def measure(self, key: str, scale: float) -> Figure | None:
        run = self._measures.get(key)
        return None if run is None else run(scale)


class LangchainQuickjs(Peer):
    """Through the classes its middleware uses for a thread's interpreter."""

    module = "langchain_quickjs"

    def __init__(self) -> None:
        super().__init__()
        self._measures = {
            "warm": self._warm,
            "warm_async": self._warm_async,
            "session": self._session,
            "start": self._start,
            "to_host": self._to_host,
            "snapshot_small": self._snapshot,
        }

    def _repl(self) -> Any:
        from langchain_quickjs._repl import _Registry

        registry = _Registry(
            memory_limit=64 << 20, timeout=5.0, capture_console=True, max_stdout_chars=4000
        )
        return registry, registry.get(f"bench-{time.perf_counter_ns()}")

    def _warm(self, scale: float) -> Figure:
        registry, repl = self._repl()
        try:
            return timed(lambda: repl.eval_sync("1+1"), int(300 * scale))
        finally:
            registry.close()

    def _warm_async(self, scale: float) -> Figure:
        registry, repl = self._repl()
        times: list[float] = []

        async def run() -> None:
            for _ in range(max(5, int(300 * scale))):
                started = time.perf_counter()
                await repl.eval_async("1+1")
                times.append(time.perf_counter() - started)

        try:
            asyncio.run(run())
        finally:
            registry.close()
        return figure(times)

    def _session(self, scale: float) -> Figure:
        def run() -> None:
            registry, repl = self._repl()
            repl.eval_sync("1+1")
            registry.close()

        return timed(run, int(20 * scale))

    def _start(self, scale: float) -> Figure:
        import subprocess
        import sys

        program = (
            "import time; t = time.perf_counter()\n"
            "from benchmarks.peers import LangchainQuickjs\n"
            "r, repl = LangchainQuickjs()._repl(); repl.eval_sync('1+1')\n"
            "print(time.perf_counter() - t); r.close()"
        )
        times = [
            float(subprocess.check_output([sys.executable, "-W", "ignore", "-c", program]))
            for _ in range(max(3, int(5 * scale)))
        ]
        return figure(times)

    def _to_host(self, scale: float) -> Figure:
        from quickjs_rs import Runtime

        # A tenth of the objects, scaled up: the whole takes some twenty seconds.
        with Runtime() as runtime, runtime.new_context() as context:
            program = (
                f"Array.from({{length: {SMALL_OBJECTS // 10}}}, (_, i) => ({{i, s: 'v' + i}}))"
            )
            one = timed(lambda: context.eval(program), max(3, int(5 * scale)), warmup=1)
        return Figure(one.median * 10, one.p90 * 10)

    def _snapshot(self, scale: float) -> Figure:
        registry, repl = self._repl()
        try:
            repl.eval_sync("var state = { rows: [1, 2, 3], name: 'x' }")

            def run() -> None:
                repl.restore_snapshot(repl.create_snapshot())

            return timed(run, int(20 * scale))
        finally:
            registry.close()


class Monty(Peer):
    """A pool of its worker processes, one session."""

    module = "pydantic_monty"

    def __init__(self) -> None:
        super().__init__()
        self._measures = {"warm": self._warm, "session": self._session, "to_host": self._to_host}

    def _warm(self, scale: float) -> Figure:
        from pydantic_monty import Monty

        with Monty() as pool, pool.checkout() as session:
            return timed(lambda: session.feed_run("1+1"), int(1000 * scale))

    def _session(self, scale: float) -> Figure:
        from pydantic_monty import Monty

        with Monty() as pool:

            def run() -> None:
                with pool.checkout() as session:
                    session.feed_run("1+1")

            return timed(run, int(100 * scale))

    def _to_host(self, scale: float) -> Figure:
        from pydantic_monty import Monty

        program = f"[{{'i': i, 's': 'v' + str(i)}} for i in range({SMALL_OBJECTS})]"
        with Monty() as pool, pool.checkout() as session:
            return timed(lambda: session.feed_run(program), int(20 * scale))


PEERS: dict[str, Peer] = {"langchain-quickjs": LangchainQuickjs(), "pydantic-monty": Monty()}
