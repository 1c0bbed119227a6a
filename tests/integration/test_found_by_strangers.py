"""What a hostile stranger found once, so that nobody finds it again."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from qjs_pool import Limits, Pool, SessionClosed, Tool


def test_timers_that_are_due_together_all_fire_and_hold_up_nothing() -> None:
    program = """
        setTimeout(() => console.log("a"), 0);
        setTimeout(() => console.log("b"), 0);
        await new Promise((done) => setTimeout(done, 5));
        7
    """
    with Pool(limits=Limits(wall=20.0)) as pool, pool.session() as session:
        result = session.eval(program)
        assert (result.value, result.stdout.split()) == (7, ["a", "b"])
        assert result.usage.wall_s < 10.0


def test_session_that_was_busy_when_the_host_forked_is_closed_in_the_child() -> None:
    def wait(_: Any) -> None:
        started.set()
        release.wait()

    started, release = threading.Event(), threading.Event()
    with Pool() as pool, pool.session(tools={"wait": wait}) as session:
        busy = threading.Thread(target=lambda: session.eval("await tools.wait({})"))
        busy.start()
        started.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            try:
                session.eval("5")
            except SessionClosed:
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        release.set()
        busy.join()
        assert os.waitstatus_to_exitcode(status) == 0
        assert session.eval("6 * 7").value == 42


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "prepare",
    [
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    ],
)
def test_signals_of_the_host_cost_no_layer(prepare: str) -> None:
    host = (
        f"import signal; {prepare}\n"
        "from qjs_pool import Pool\n"
        "with Pool(isolation='strict') as pool, pool.session() as session:\n"
        "    print(session.eval('6 * 7').value)"
    )
    done = subprocess.run(
        [sys.executable, "-c", host], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("42\n", "")


class Markup(str):
    """Text of another type, as template engines have."""

    __slots__ = ()


def test_text_of_a_derived_type_is_text() -> None:
    tool = Tool(call=lambda args: args, description=Markup("says it"), required=(Markup("q"),))
    with Pool() as pool, pool.session(tools={Markup("echo"): tool}) as session:
        session.set(Markup("name"), Markup("value"))
        assert session.eval(Markup("name")).value == "value"
        assert session.eval("await tools.echo('x')").value == {"q": "x"}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_tool_that_wants_to_end_the_program_ends_its_call(error: BaseException) -> None:
    def leave(_: Any) -> None:
        raise error

    async def leave_async(_: Any) -> None:
        await asyncio.sleep(0)
        raise SystemExit(3)

    tools = {"leave": leave, "leave_async": leave_async}
    with Pool() as pool, pool.session(tools=tools) as session:
        for call in ("tools.leave({})", "tools.leaveAsync({})"):
            result = session.eval(f"kept = 2; await {call}")
            assert result.error is not None
            assert result.state == "kept"
        assert session.eval("kept").value == 2


def test_preload_may_be_larger_than_a_datagram() -> None:
    source = "globalThis.table = " + repr(list(range(200_000))) + ";"
    with Pool(preload=source) as pool, pool.session() as session:
        assert session.eval("table.length").value == 200_000


def test_name_that_no_program_can_read_is_refused() -> None:
    with Pool() as pool, pool.session() as session:
        with pytest.raises(ValueError, match="reserved word"):
            session.set("class", 1)
        session.set("\u00fcber", 1)
        assert session.eval("\u00fcber + 1").value == 2
