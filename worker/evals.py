"""One eval, from its request to its outcome: budgets, jobs, timers, calls, and what went wrong."""

import contextlib
import json
import os
import select
import time
from typing import Any, Final, Protocol

from qjs_pool.wire import ProtocolError
from qjs_pool.wire import messages as wire
from qjs_pool.wire.values import decode_value, encode_value

from .budget import Budget, OutOfTime
from .engine import (
    Engine,
    EngineBroken,
    EngineOutOfMemory,
    HostCall,
    Interrupted,
    Outcome,
    clean_stack,
)
from .functions import Functions
from .modules import IMPORT, ModuleFailure, Modules
from .transpile import RESERVED, NoRoom, Program, transpile

# Engine memory beyond the limit while an eval runs, so that a session whose heap is full can
# still run the program that frees it. What is over the limit at the end is not kept.
_HEADROOM_BYTES: Final = 256 << 10
# Time to run the jobs that a timed-out program left behind. The engine can't drop them, and
# they must not run in the next eval, so if this doesn't suffice the state is given up.
_DRAIN_CPU_S: Final = 0.05
_REMEMBERED_CHARS: Final = 256
_REMEMBERED: Final = 32
_JOBS_PER_CLOCK: Final = 64
_BUSY_JOBS: Final = 20_000  # run by one eval without having settled
_DEADLOCK: Final = (
    "the program awaits a promise that nothing can settle: no timer, job or tool call is left"
)
# The interpreter has specialised a function after it ran that often.
_REHEARSALS: Final = 16
_REHEARSED: Final = (
    "const rows = [1, 2, 3]; rows.map((row) => row + 1)",
    "let total: number = 0; for (const n of [1]) { total += n } console.log(`total ${total}`)",
    "async function go(items) { try { return await Promise.all(items) } catch { return [] } }",
)
_SAMPLE_REQUEST: Final = wire.encode_body(wire.Eval(0, "0", 5.0, 300.0, 0, True))


class Host(Protocol):
    """What an eval needs of the worker: messages in and out."""

    @property
    def data(self) -> Any: ...
    @property
    def has_unread(self) -> bool: ...
    def read(self) -> list[wire.ToWorker]: ...
    def send(self, message: wire.FromWorker) -> None: ...


class EvalRunner:
    """Runs the evals of one session, one at a time."""

    _host: Host

    def __init__(self, engine: Engine, functions: Functions) -> None:
        self._engine = engine
        self._functions = functions
        self._modules = Modules(engine)
        self._memory_bytes = self._value_bytes = self._value_nodes = 0
        self._opened = False
        self._calls = self._jobs = 0  # tool calls and jobs of this eval
        self._programs: dict[str, Program] = {}  # short ones without functions, by their source
        self._reserved = RESERVED
        self._here: Functions = {}  # worker functions, by the guest's names for them
        self._holding: frozenset[str] = frozenset()  # tools whose calls stop an eval
        self._hold_since: float | None = None  # when this eval stopped, or was asked to
        self._hold_asked = False
        self._held_s = 0.0  # that evals were held, in which timers stood still

    def prepare(self, options: wire.Open) -> None:
        """In the zygote: the options that most sessions have, so that no worker applies them."""
        self._apply(options)
        self._engine.rebase()

    def rehearse(self) -> None:
        """In the zygote: the way of an eval, until the interpreter has specialised its code.

        What is written to a page there is written once, and not by each worker into its own copy.
        """
        for _ in range(_REHEARSALS):
            self.warm()
            for code in _REHEARSED:
                transpile(code, 1)
        self._engine.rebase()

    def begin(self, host: Host) -> None:
        """Serve `host`; in the worker."""
        self._host = host
        self._engine.begin()

    def open(self, options: wire.Open) -> None:
        """Apply the session's options."""
        self._opened = True
        self._apply(options)

    def _apply(self, options: wire.Open) -> None:
        self._memory_bytes = options.memory_bytes
        self._here = {
            tool.name: self._functions[tool.alias]
            for tool in options.tools
            if tool.alias in self._functions
        }
        # For good: the name stays an accessor when its tool is withdrawn.
        self._reserved |= {tool.name for tool in options.tools if tool.is_global}
        self._holding = frozenset(tool.name for tool in options.tools if tool.holds)
        self._value_bytes, self._value_nodes = options.value_bytes, options.value_nodes
        self._engine.set_memory(options.memory_bytes)
        self._engine.set_stack(options.stack_bytes)
        self._engine.configure(options)
        self._modules.install(options.modules)

    @property
    def memory_bytes(self) -> int:
        """The guest's heap, as the session's options have it."""
        return self._memory_bytes

    def set_global(self, message: wire.SetGlobal) -> str | None:
        """Put a host value into the session; the reason when that can't be."""
        try:
            self._engine.set_cpu(None)
            if not self._engine.set_global(message.name, message.value):
                return f"{message.name!r} is a constant, of the sandbox or of the guest's making"
        except EngineOutOfMemory:
            return f"no memory left for {message.name!r} under Limits.memory"
        return None

    def answer(self, message: wire.ToolAnswer) -> None:
        """Deliver the answer of a tool call."""
        self._engine.settle(message.call_id, message.ok, message.payload)

    def warm(self) -> None:
        """Walk the path of an eval without one: no guest code runs, and nothing is sent."""
        request = wire.decode_to_worker(_SAMPLE_REQUEST)
        assert isinstance(request, wire.Eval)
        if not self._opened:  # nothing is there yet that a program of ours could touch
            self.run(request)
        budget = Budget(request.cpu_s, request.wall_s)
        program = transpile(request.code)
        self._engine.set_cpu(budget.cpu_left())
        self._engine.warm()
        self._engine.set_cpu(None)
        wire.to_frame(self._done(request, _failed("", "", ""), "kept", budget, program))

    def run(self, request: wire.Eval) -> wire.EvalDone:
        """Run one program to its outcome."""
        budget = Budget(request.cpu_s, request.wall_s)
        engine = self._engine
        program: Program | None = None
        state: wire.State = "kept"
        self._calls = self._jobs = 0
        self._hold_since, self._hold_asked = None, False
        if request.seed:
            engine.reseed(request.seed)
        try:
            program = self._program(request.code)
            engine.set_memory(self._memory_bytes + _HEADROOM_BYTES)
            self._execute(request, program, budget)
            engine.set_cpu(budget.cpu_left())
            outcome = engine.finish()
            self._check_memory(outcome)
        except (Interrupted, OutOfTime) as end:
            outcome, state = self._after_timeout(end, budget)
        except _Deadlocked:
            # A promise whose rejection met a full heap is never settled either.
            if engine.ran_full():
                outcome, state = self._after_out_of_memory(budget), "lost"
            else:
                outcome = _failed(engine.abandon(), "Deadlock", _DEADLOCK)
        except _TooLarge:
            outcome = self._too_large(len(request.code.encode()))
        except EngineOutOfMemory:
            outcome, state = self._after_out_of_memory(budget), "lost"
        except EngineBroken:
            # A native function that met a full heap may fail in any way at all.
            if not engine.ran_full():
                raise
            outcome, state = self._after_out_of_memory(budget), "lost"
        engine.set_cpu(None)
        return self._done(request, outcome, state, budget, program)

    def import_modules(self, ids: list[str], cpu_s: float) -> None:
        """Have modules evaluated, for what a snapshot has of them. One that fails is left out."""
        names = ",".join(json.dumps(name) for name in ids)
        code = f"void await Promise.allSettled([{names}].map((id) => import(id)))"
        # No tool is called, nothing is sent: the host waits for the end of another request.
        request = wire.Eval(0, code, cpu_s, cpu_s, 0, False)
        done = self.run(request)
        if done.state == "lost":
            raise EngineOutOfMemory

    def _program(self, code: str) -> Program:
        known = self._programs.get(code)
        if known is not None:
            return known
        ticket = int.from_bytes(os.urandom(6), "little") | 1
        program = None
        # Left before anything else is done: the exception keeps alive what took the memory.
        with contextlib.suppress(NoRoom, MemoryError):
            program = transpile(code, ticket, reserved=self._reserved)
        if program is None:
            raise _TooLarge
        if program.sites:
            self._engine.prove(ticket, program.sites)
        elif len(code) <= _REMEMBERED_CHARS:
            # Hosts ask the same short question again and again ("n", "state.done").
            if len(self._programs) >= _REMEMBERED:
                self._programs.clear()
            self._programs[code] = program
        return program

    def _execute(self, request: wire.Eval, program: Program, budget: Budget) -> None:
        """Run the scripts, then jobs, timers and tool answers until the value is there."""
        engine = self._engine
        last = len(program.scripts) - 1
        for index, script in enumerate(program.scripts):
            engine.set_cpu(budget.cpu_left())
            engine.run(
                script,
                first=index == 0,
                last=index == last,
                boxed=program.boxed and index == last,
                want_value=request.want_value,
            )
        while True:
            self._run_jobs(budget)
            engine.set_cpu(budget.cpu_left())
            stopped = self._hold_since is not None
            status = engine.poll(None if stopped else self._timer_ms())
            for call in status.calls:
                if call.name == IMPORT:
                    self._import(call, budget)
                else:
                    self._call(call, request)
            if engine.run_job():
                continue  # a timer's callback queued more
            if status.settled:
                return
            if self._hold_asked:
                self._stay_held(request, budget)
            else:
                timer_s = None if self._hold_since is not None else status.next_timer_s
                self._wait(timer_s, status.calls_open, budget)

    def _call(self, call: HostCall, request: wire.Eval) -> None:
        """Have a tool called: here, if it is a worker function, else by the host."""
        self._calls += 1
        limit = request.host_calls
        if limit is not None and self._calls > limit:
            message = (
                f"this eval has used its {limit} tool calls; do more per call, or in two evals"
            )
            self._settle(call, False, ["PTCCallBudgetExceeded", message])
        elif (function := self._here.get(call.name)) is not None:
            try:
                value = function(decode_value(call.args.encode(), self._value_nodes))
                answer = True, self._encoded(value)
            except BaseException as error:  # SystemExit as well: whose function it is, says why
                answer = False, self._encoded(_described(error))
            self._engine.settle(call.id, *answer)
        else:
            self._host.send(wire.ToolCall(request.eval_id, call.id, call.name, call.args))
            if request.may_hold and call.name in self._holding and self._hold_since is None:
                # Now, not when the host says so: no timer gets ahead of the question.
                self._hold_since = time.monotonic()

    def _import(self, call: HostCall, budget: Budget) -> None:
        """Give the engine the module that a program or a module asks for; no call of a tool's."""
        specifier, importer = decode_value(call.args.encode(), self._value_nodes)
        try:
            module_id = self._modules.load(specifier, importer, budget.cpu_left)
        except ModuleFailure as failure:
            self._settle(call, False, [failure.name, str(failure)])
        else:
            self._settle(call, True, module_id)
        self._engine.set_cpu(budget.cpu_left())

    def _settle(self, call: HostCall, ok: bool, value: object) -> None:
        self._engine.settle(call.id, ok, self._encoded(value))

    def _encoded(self, value: object) -> str:
        return encode_value(value, max_bytes=self._value_bytes, max_nodes=self._value_nodes)

    def _run_jobs(self, budget: Budget) -> None:
        run_job = self._engine.run_job
        while True:
            self._engine.set_cpu(budget.cpu_left())
            # Reading the clock costs as much as a small job; a long one is interrupted anyway.
            for _ in range(_JOBS_PER_CLOCK):
                if not run_job():
                    return
            self._jobs += _JOBS_PER_CLOCK

    def _wait(self, next_timer_s: float | None, calls_open: int, budget: Budget) -> None:
        """Wait for a tool's answer or the next timer, within the wall."""
        if next_timer_s is None and not calls_open:
            raise _Deadlocked
        left = budget.wall_left()
        wait_s = min((end for end in (next_timer_s, left) if end is not None), default=None)
        started = time.monotonic()
        poll = select.poll()
        poll.register(self._host.data, select.POLLIN)
        ready = self._host.has_unread or poll.poll(None if wait_s is None else wait_s * 1000.0)
        waited_s = time.monotonic() - started
        if calls_open:
            budget.tools_s += waited_s
        else:
            budget.timers_s += waited_s
        if ready:
            self._engine.set_cpu(budget.cpu_left())
            self._take(self._host.read(), budget)

    def _take(self, messages: list[wire.ToWorker], budget: Budget) -> None:
        for message in messages:
            if isinstance(message, wire.ToolAnswer):
                # With the jobs of each before the next: what a program does must not depend on
                # which answers came in one chunk, or it could not be replayed.
                self.answer(message)
                self._run_jobs(budget)
            elif isinstance(message, wire.Hold):
                self._hold_asked = True
                self._hold_since = self._hold_since or time.monotonic()
            else:
                raise ProtocolError(f"{type(message).__name__} during an eval")

    def _stay_held(self, request: wire.Eval, budget: Budget) -> None:
        """Do nothing until the host says so; no clock of the eval's counts that."""
        self._host.send(wire.Held(request.eval_id))
        messages: list[wire.ToWorker] = []
        while not messages:
            messages = self._host.read()
        resume = messages.pop(0)
        if not isinstance(resume, wire.Resume) or self._hold_since is None:
            raise ProtocolError(f"{type(resume).__name__} for an eval that is held")
        stood_s = max(0.0, time.monotonic() - self._hold_since - resume.counted_s)
        self._hold_since, self._hold_asked = None, False
        self._held_s += stood_s
        budget.stood_still(stood_s)
        self._take(messages, budget)

    def _timer_ms(self) -> float:
        """The time as timers count it."""
        return (time.monotonic() - self._held_s) * 1000.0

    def _check_memory(self, outcome: Outcome) -> None:
        """Out of memory is told by the allocator: a guest can throw an error that looks like it."""
        engine = self._engine
        if outcome.out_of_memory:
            raise EngineOutOfMemory
        engine.set_memory(self._memory_bytes)
        if not engine.can_allocate():
            raise EngineOutOfMemory

    def _after_timeout(self, end: Exception, budget: Budget) -> tuple[Outcome, wire.State]:
        engine = self._engine
        message = budget.spent()
        engine.set_cpu(None)
        outcome = _failed(engine.abandon(), "Timeout", message)
        drained = self._drained()
        engine.set_memory(self._memory_bytes)
        return outcome, "kept" if drained and engine.can_allocate() else "lost"

    def _drained(self) -> bool:
        engine = self._engine
        end = time.process_time() + _DRAIN_CPU_S
        try:
            while (left := end - time.process_time()) > 0:
                engine.set_cpu(left)
                if not engine.run_job():
                    engine.abandon()  # the requests those jobs made go nowhere
                    return True
        except (Interrupted, EngineOutOfMemory):
            pass
        return False

    def _after_out_of_memory(self, budget: Budget) -> Outcome:
        engine = self._engine
        # What was printed is still worth having; the state is gone in any case.
        engine.set_memory(self._memory_bytes + (8 << 20))
        engine.set_cpu(1.0)
        try:
            stdout = engine.abandon()
        except Exception:
            stdout = ""
        limit = f"{self._memory_bytes / (1 << 20):g} MiB"
        # Promises that only ever lead to more promises run out of time or of memory, whichever
        # is less. That loop is what went wrong, so it has one name on every machine: with the
        # chain broken its memory is free again, which data that was piled up is not.
        if self._jobs > _BUSY_JOBS and engine.memory() < self._memory_bytes // 2:
            return _failed(
                stdout,
                "Timeout",
                f"{self._jobs} jobs without a pause filled the memory limit of {limit}: "
                f"the promises never settle; {budget.spent()}",
            )
        return _failed(
            stdout,
            "OutOfMemory",
            f"the program needed more than its memory limit of {limit}",
        )

    def _too_large(self, size: int) -> Outcome:
        return _failed(
            "",
            "OutOfMemory",
            f"a program of {size} bytes, to be read, needs more memory than the memory limit of "
            f"{self._memory_bytes / (1 << 20):g} MiB leaves; nothing ran. Send it in parts, hand "
            "its data over by other means than source text, or have the limit raised",
        )

    def _done(
        self,
        request: wire.Eval,
        outcome: Outcome,
        state: wire.State,
        budget: Budget,
        program: Program | None,
    ) -> wire.EvalDone:
        error = outcome.error
        if error is not None and program is not None:
            error = wire.ErrorInfo(
                error.name,
                error.message,
                clean_stack(error.stack, program.locate, self._modules.place),
            )
        return wire.EvalDone(
            eval_id=request.eval_id,
            text=outcome.text,
            stdout=outcome.stdout,
            kind=outcome.kind,
            value=outcome.value,
            value_error=outcome.value_error,
            error=error,
            state=state,
            cpu_s=budget.cpu_used(),
            peak_rss_bytes=self._engine.peak_rss_bytes(),
            notes=[],
        )


class _Deadlocked(Exception):
    pass


class _TooLarge(Exception):
    """The program is; nothing of it ran."""


def _described(error: BaseException) -> list[str]:
    try:
        text = str(error)
    except Exception:
        text = "it does not say what went wrong"
    return [type(error).__name__, text[:4000]]


def _failed(stdout: str, name: str, message: str) -> Outcome:
    return Outcome(
        text="",
        stdout=stdout,
        kind="value",
        value=None,
        value_error=None,
        error=wire.ErrorInfo(name, message, ""),
        out_of_memory=False,
    )
