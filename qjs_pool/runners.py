"""Where a tool call runs: a daemon thread, the caller's event loop, or a loop in the background.

A runner starts a call and gives back how to cancel it; the outcome goes to `done`, from whatever
thread it comes about in.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, Final

from .tools import is_async

# What async tools get to clean up when their pool is closed.
_CLEAN_UP_S: Final = 1.0

Done = Callable[[Any, BaseException | None], None]  # value, or what was raised
Cancel = Callable[[], None]


class DaemonThreads:
    """Threads for sync tools, reused, as many as calls run at once.

    Daemons, unlike those of `concurrent.futures`: a tool that never returns must not keep the
    host's interpreter from ending.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = 0
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` in some thread; it must not raise."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                fresh = False
            else:
                fresh = True
        self._jobs.put(job)
        if fresh:
            threading.Thread(target=self._work, name="qjs-pool tool", daemon=True).start()

    def close(self) -> None:
        """Let idle threads end; those that run a job end after it."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job
            with self._lock:
                if self._closed:
                    return
                self._idle += 1


class Runner:
    """Starts tool calls: async ones as tasks, sync ones in threads.

    The tasks run in the loop that drives the eval; where a thread drives it, in one of the
    pool's own, as a loop that the thread itself belongs to would wait for the eval.
    """

    def __init__(
        self, threads: DaemonThreads, background: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        self._threads = threads
        self._background = background

    def start(
        self,
        call: Callable[[Any], Any],
        args: Any,
        done: Done,
        loop: asyncio.AbstractEventLoop | None,
    ) -> Cancel:
        """Start `call(args)`; `loop` is the one that drives the eval, None for a thread."""
        if is_async(call):
            return _start_in_loop(loop or self._background(), call, args, done)
        awaiting = self._background if loop is None else lambda: loop
        return _start_in_thread(self._threads, awaiting, call, args, done)


def _start_in_loop(
    loop: asyncio.AbstractEventLoop, call: Callable[[Any], Any], args: Any, done: Done
) -> Cancel:
    """Run an async call as a task of `loop`, in the caller's context; from any thread."""

    async def run() -> tuple[Any, BaseException | None]:
        try:
            return await call(args), None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Not out of the task: a SystemExit would end the loop that runs it.
            return None, error

    def ended(task: asyncio.Task[tuple[Any, BaseException | None]]) -> None:
        # Here and not in `run`, which never starts if the task is cancelled before that.
        if task.cancelled():
            done(None, asyncio.CancelledError())
        else:
            done(*task.result())

    started: list[asyncio.Task[tuple[Any, BaseException | None]]] = []

    def start() -> None:
        task = loop.create_task(run())
        task.add_done_callback(ended)
        started.append(task)

    def cancel() -> None:
        # Tasks are not thread-safe, and a session may be closed from any thread.
        with contextlib.suppress(RuntimeError):  # its loop is closed, and the task with it
            loop.call_soon_threadsafe(lambda: started[0].cancel() if started else None)

    if asyncio._get_running_loop() is loop:
        start()
    else:
        loop.call_soon_threadsafe(start)
    return cancel


def _start_in_thread(
    threads: DaemonThreads,
    loop: Callable[[], asyncio.AbstractEventLoop],
    call: Callable[[Any], Any],
    args: Any,
    done: Done,
) -> Cancel:
    context = contextvars.copy_context()
    cancels: list[Cancel] = []

    async def wait(awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    def job() -> None:
        try:
            value = context.run(call, args)
            if inspect.isawaitable(value):  # a sync function that returns a coroutine
                cancels.append(context.run(_start_in_loop, loop(), wait, value, done))
                return
        except BaseException as error:
            done(None, error)
        else:
            done(value, None)

    def cancel() -> None:
        # A running thread cannot be stopped: its result is dropped.
        for cancel_it in cancels:
            cancel_it()

    threads.submit(job)
    return cancel


class BackgroundLoop:
    """An event loop in a daemon thread of its own, started when first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="qjs-pool loop", daemon=True
                )
                thread.start()
            return self._loop

    def close(self) -> None:
        """Stop the loop; what runs in it is cancelled."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(loop.stop)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:  # they may clean up after themselves, not go on
            loop.run_until_complete(asyncio.wait(tasks, timeout=_CLEAN_UP_S))
    finally:
        loop.close()
