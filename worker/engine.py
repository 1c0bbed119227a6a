"""The narrow adapter to the QuickJS binding: a context, its limits, and the prelude's bridge.

What belongs here: calling into the engine and naming the ways a call can end. What does not:
budgets and loops (`evals.py`), what values mean (the prelude; the host decodes).

A call ends normally, or raises `Interrupted` (CPU time is up), `EngineOutOfMemory` (an exception
got out that only a full heap explains) or `EngineBroken` (anything else: a bug of ours, the worker
must not go on). Whatever a guest throws stays inside the prelude and comes back as data.
"""

import functools
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import _quickjs  # not `quickjs`: that one starts a thread
import msgspec

from qjs_pool.wire import messages as wire

from .stacks import PRELUDE_LINE_BASE, clean_stack

__all__ = [
    "Engine",
    "EngineBroken",
    "EngineError",
    "EngineOutOfMemory",
    "HostCall",
    "Interrupted",
    "Outcome",
    "Status",
    "clean_stack",
]

_FIRST: Final = 1
_LAST: Final = 2
_BOXED: Final = 4
_WANT_VALUE: Final = 8

# Encoded bytes can exceed the units that the prelude counts, as text that isn't ASCII does.
_TOO_LARGE: Final = "the value takes {} bytes, the limit for one value is {}"


class EngineError(Exception):
    """A call into the engine did not return."""


class Interrupted(EngineError):
    """The CPU time given to the call is used up."""


class EngineOutOfMemory(EngineError):
    """The engine had no memory to go on. Its state cannot be trusted any more."""


class EngineBroken(EngineError):
    """The engine or the prelude failed in a way that no guest program should bring about."""


class HostCall(NamedTuple):
    """A request of the guest's to the host. `args` is encoded JSON."""

    id: int
    name: str
    args: str


class Status(NamedTuple):
    """What an eval waits for. `next_timer_s` is None without timers."""

    settled: bool
    next_timer_s: float | None
    calls_open: int
    calls: tuple[HostCall, ...]


class Outcome(NamedTuple):
    """How an eval ended; `out_of_memory` says that it looks like the engine's own failure."""

    text: str
    stdout: str
    kind: Literal["value", "handle"]
    value: bytes | None
    value_error: tuple[str, str] | None
    error: wire.ErrorInfo | None
    out_of_memory: bool


class _Head(msgspec.Struct, array_like=True, frozen=True):
    text: str
    stdout: str
    kind: Literal["value", "handle"]
    # 1: an out-of-memory error that only the engine makes; 2: null was thrown, which the engine
    # does when it can't even make an error, and any guest may do as well; 3: an interrupt that a
    # native function turned into a rejection (a promise's executor; in the classic engine any
    # async function does).
    oom: int
    value_error: tuple[str, str] | None
    error: wire.ErrorInfo | None


_INTERRUPTED: Final = 3
_CPU_STEP_S: Final = 0.005
_DEFAULT_STACK_BYTES: Final = 256 << 10  # the engine's own
_ENCODING_STACK_BYTES: Final = 512 << 10
_decode_head: Final = msgspec.json.Decoder(_Head).decode
_SAMPLE_HEAD: Final = b'["0","","value",0,null,null]'
_decode_text: Final = msgspec.json.Decoder(str).decode

_PENDING: Final = Status(False, None, 0, ())
_SETTLED: Final = Status(True, None, 0, ())


class Engine:
    """One engine with the prelude loaded. Single-threaded; copied by fork."""

    def __init__(self) -> None:
        self._context = _quickjs.Context()
        self._cpu_s: float | None = None
        bridge = _enter(self._context.eval, _prelude_source())
        function = {
            name: _enter(bridge, name)
            for name in [
                "abandon",
                "configure",
                "finish",
                "freezeBase",
                "limits",
                "poll",
                "probeAlloc",
                "reseed",
                "run",
                "setGlobal",
                "settle",
                "stdout",
                "warm",
            ]
        }
        self._bridge = bridge
        missing = [name for name, found in function.items() if found is None]
        if missing:
            raise EngineBroken(f"the prelude lacks {', '.join(missing)}")
        self._abandon: Callable[[], str] = function["abandon"]
        self._configure: Callable[[str], int] = function["configure"]
        self._finish: Callable[[], str] = function["finish"]
        self._freeze_base: Callable[[], int] = function["freezeBase"]
        self._limits: Callable[[int, int, int, int], int] = function["limits"]
        self._poll: Callable[[float], str | int] = function["poll"]
        self._probe_alloc: Callable[[], int] = function["probeAlloc"]
        self._reseed: Callable[[str], int] = function["reseed"]
        self._run: Callable[[str, int], int] = function["run"]
        self._set_global: Callable[[str, str], int] = function["setGlobal"]
        self._settle: Callable[[int, bool, str], int] = function["settle"]
        self._stdout: Callable[[], str] = function["stdout"]
        self._warm: Callable[[], int] = function["warm"]
        self._value_bytes = 16 << 20
        # What loading left behind would be room for the guest, once it is collected.
        self._context.gc()
        self._base_bytes = self._malloc_bytes()
        self._base_rss_bytes: int | None = None
        self._peak_before_bytes = 0  # ... this eval
        self._limit_bytes = 1 << 62
        self._stack_bytes = _DEFAULT_STACK_BYTES
        self._prove = self.entry("prove")
        self._caps = (0, 0, 0, 0)
        self._told: tuple[str, list[wire.Tool]] | None = None
        self.warm()

    def entry(self, name: str) -> Callable[..., Any]:
        """A function of the prelude's bridge, for what has a module of its own here."""
        function = _enter(self._bridge, name)
        if function is None:
            raise EngineBroken(f"the prelude lacks {name}")
        return functools.partial(_enter, function)

    # --- limits ----------------------------------------------------------------------------------

    def set_cpu(self, remaining_s: float | None) -> None:
        """CPU seconds for each following call into the engine, None for no limit."""
        known_s = self._cpu_s
        near = (
            remaining_s is not None
            and known_s is not None
            and (0.0 <= known_s - remaining_s < _CPU_STEP_S)
        )  # setting it costs as much as running a job
        if remaining_s != known_s and not near:
            self._context.set_time_limit(-1 if remaining_s is None else max(remaining_s, 0.0))
            self._cpu_s = remaining_s

    def set_memory(self, limit_bytes: int) -> None:
        """Heap for the guest, on top of what engine and prelude use."""
        self._limit_bytes = limit_bytes
        self._context.set_memory_limit(self._base_bytes + limit_bytes)

    def set_stack(self, limit_bytes: int) -> None:
        """Stack for the guest's calls."""
        self._stack_bytes = limit_bytes
        self._context.set_max_stack_size(limit_bytes)

    def memory(self) -> int:
        """Bytes of heap in use on top of the base."""
        return max(0, self._malloc_bytes() - self._base_bytes)

    def can_allocate(self) -> bool:
        """Whether the heap is within its limit, as the allocator sees it."""
        # Cycles may be what fills it. Collected only then: it costs milliseconds, and writes to
        # every object, which copies every page that the keeper shares.
        return self._probes() or (self._context.gc() is None and self._probes())

    def peak_rss_bytes(self) -> int:
        """The most memory this process held so far; the next eval's growth counts from here."""
        self._peak_before_bytes = _peak_rss_bytes()
        return self._peak_before_bytes

    def ran_full(self) -> bool:
        """Whether this eval's heap is, or was for a moment, about as large as its limit.

        For the `null` that the engine throws when it has no memory for an error object, and for
        promises whose rejection it had none for: by the time we look, what filled the heap may be
        free again, and only the process knows.
        """
        peak = _peak_rss_bytes()
        # An array that grows by half can fail to when it holds two thirds of the limit.
        large = peak - (self._base_rss_bytes or 0) >= self._limit_bytes * 5 // 8
        return (large and peak > self._peak_before_bytes) or not self.can_allocate()

    def _probes(self) -> bool:
        try:
            return bool(_enter(self._probe_alloc))
        except EngineError:
            return False

    def _malloc_bytes(self) -> int:
        return int(self._context.memory()["malloc_size"])

    # --- the session -----------------------------------------------------------------------------

    def preload(
        self, scripts: Sequence[str], *, boxed: bool = False, cpu_s: float | None = None
    ) -> None:
        """Run the host's own program into the base image, then freeze what it made.

        Raises:
            ValueError: the code threw, did not settle or took longer than `cpu_s`.
        """
        self.set_cpu(cpu_s)
        try:
            last = len(scripts) - 1
            for index, script in enumerate(scripts):
                self.run(
                    script,
                    first=index == 0,
                    last=index == last,
                    boxed=boxed and index == last,
                    want_value=False,
                )
            while self.run_job():
                pass
            status = self.poll(0.0)
            if not status.settled or status.calls_open:
                raise ValueError("preload code must not wait for anything")
            outcome = self.finish()
        except Interrupted:
            raise ValueError(f"preload code ran longer than {cpu_s} s") from None
        finally:
            self.set_cpu(None)
        if outcome.error is not None:
            raise ValueError(f"preload code threw {outcome.error.name}: {outcome.error.message}")
        _enter(self._freeze_base)
        self.rebase()

    def rebase(self) -> None:
        """Count the guest's heap from here on; in the zygote."""
        self._context.gc()
        self._base_bytes = self._malloc_bytes()

    def begin(self) -> None:
        """Count the process's memory from here on; in a worker, which starts with a good deal
        less than the zygote holds."""
        self._base_rss_bytes = _peak_rss_bytes()

    def configure(self, options: wire.Open) -> None:
        """Apply a session's options to the prelude: those that are not applied already."""
        caps = (
            options.result_chars, options.console_chars, options.value_bytes, options.value_nodes
        )  # fmt: skip
        if caps != self._caps:
            self._caps = caps
            self.set_limits(
                result_chars=options.result_chars,
                console_chars=options.console_chars,
                value_bytes=options.value_bytes,
                value_nodes=options.value_nodes,
            )
        if options.seed:
            self.reseed(options.seed)
        told = (options.clock, options.tools)
        if told == self._told:
            return
        self._told = told
        self.configure_with(
            {
                "clock": options.clock,
                "tools": [
                    {
                        "name": tool.name,
                        "alias": tool.alias,
                        "required": tool.required,
                        "description": tool.description,
                        "isGlobal": tool.is_global,
                    }
                    for tool in options.tools
                ],
            }
        )

    def configure_with(self, options: dict[str, Any]) -> None:
        """Apply any subset of the options that the prelude's files know."""
        _enter(self._configure, msgspec.json.encode(options).decode())

    def set_limits(
        self, *, result_chars: int, console_chars: int, value_bytes: int, value_nodes: int
    ) -> None:
        """Caps on what one eval may show, print and hand over."""
        self._value_bytes = value_bytes
        _enter(self._limits, result_chars, console_chars, value_bytes, value_nodes)

    def set_global(self, name: str, value: str) -> bool:
        """Put a host value (encoded JSON) into the session; False if the name can't be had."""
        return bool(_enter(self._set_global, name, value))

    def reseed(self, seed: str) -> None:
        """Start another stream of random numbers: copies of a session must not share one."""
        _enter(self._reseed, seed)

    def warm(self) -> None:
        """Touch the memory that an eval touches."""
        _enter(self._warm)
        _enter(self._context.execute_pending_job)
        _decode_head(_SAMPLE_HEAD)
        self.can_allocate()
        self.peak_rss_bytes()

    # --- one eval --------------------------------------------------------------------------------

    def run(self, source: str, *, first: bool, last: bool, boxed: bool, want_value: bool) -> bool:
        """Run one script of a program; True once the program's value is there."""
        flags = (
            (_FIRST if first else 0)
            | (_LAST if last else 0)
            | (_BOXED if boxed else 0)
            | (_WANT_VALUE if want_value else 0)
        )
        return not _enter(self._run, source, flags)

    def prove(self, ticket: int, sites: str) -> None:
        """Before a program runs: what it hands over under `ticket` is what `sites` (JSON) says."""
        self._prove(float(ticket), sites)  # the binding makes a BigInt of a large int

    def run_job(self) -> bool:
        """Run one pending job; False when there was none."""
        return bool(_enter(self._context.execute_pending_job))

    def poll(self, now_ms: float | None) -> Status:
        """Take the requests that were queued or, without any, fire a timer that is due.

        `now_ms`: None while timers stand still.
        """
        answer = _enter(self._poll, -1.0 if now_ms is None else now_ms)
        if not isinstance(answer, str):
            return _SETTLED if answer else _PENDING
        head, *lines = answer.split("\n")
        settled, timer_ms, open_calls = head.split(" ")
        calls = []
        for about, args in zip(lines[::2], lines[1::2], strict=True):
            call_id, _, name = about.partition(" ")
            calls.append(HostCall(int(call_id), name, args))
        next_timer_s = None if timer_ms == "-" else float(timer_ms) / 1000.0
        return Status(settled == "1", next_timer_s, int(open_calls), tuple(calls))

    def settle(self, call_id: int, ok: bool, payload: str) -> bool:
        """Answer a host call: encoded JSON of the value, or of `[name, message]`.

        False when nobody waits for it any more."""
        return bool(_enter(self._settle, call_id, ok, payload))

    def finish(self) -> Outcome:
        """The outcome of an eval that has settled."""
        # Encoding takes up to three calls a level, and 200 levels may cross at any stack limit.
        self._context.set_max_stack_size(self._stack_bytes + _ENCODING_STACK_BYTES)
        answer: str = _enter(self._finish)
        self._context.set_max_stack_size(self._stack_bytes)
        line, _, encoded = answer.partition("\n")
        head = _decode_head(line)
        if head.oom == _INTERRUPTED:
            raise Interrupted("InternalError: interrupted")
        value = encoded.encode() if encoded else None
        value_error = head.value_error
        if value is not None and len(value) > self._value_bytes:
            value_error = ("ValueTooLarge", _TOO_LARGE.format(len(value), self._value_bytes))
            value = None
        return Outcome(
            head.text,
            head.stdout,
            head.kind,
            value,
            value_error,
            head.error,
            head.oom == 1 or (head.oom == 2 and self.ran_full()),
        )

    def abandon(self) -> str:
        """Forget the current eval, its host calls included; returns what it had printed."""
        return _decode_text(_enter(self._abandon))

    def stdout(self) -> str:
        """What the current eval has printed so far."""
        return _decode_text(_enter(self._stdout))


def _peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _enter(function: Callable[..., Any], *args: Any) -> Any:
    """Call into the engine, and name the way out when it is not a return."""
    try:
        return function(*args)
    except _quickjs.JSException as error:
        raise _named(str(error)) from None
    except MemoryError:
        raise EngineOutOfMemory from None


def _named(message: str) -> EngineError:
    first = message.partition("\n")[0]
    if first.startswith("InternalError: interrupted"):
        return Interrupted(first)
    if first in ("null", "InternalError: out of memory"):
        return EngineOutOfMemory(first)
    return EngineBroken(message[:2000])


def _prelude_source() -> str:
    """The prelude as one script: its files in name order, as the body of one function.

    It starts far down, so that frames of the prelude can be told by their line number.
    """
    folder = Path(__file__).parent / "prelude"
    files = sorted(folder.glob("*.js"))
    body = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return (
        "\n" * PRELUDE_LINE_BASE + '(function () { "use strict";\n' + body + "\nreturn bridge; })()"
    )
