"""A process that takes the place of a session's anchor, keeper and worker, and speaks badly.

    python saboteur.py SCENE LEASH_FD CONTROL_FD DATA_FD

It is one process for all three roles, as a taken-over worker could be at most. Until its scene
begins it is polite: it greets, answers Open, and waits for an eval.
"""

from __future__ import annotations

import array
import errno
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from qjs_pool.wire import FrameDecoder, ProtocolError, encode_frame
from qjs_pool.wire import messages as wire

Scene = Callable[["Saboteur"], None]
SCENES: Final[dict[str, Scene]] = {}
BIG: Final = 1 << 20


def scene(play: Scene) -> Scene:
    """Register a scene under its name."""
    SCENES[play.__name__] = play
    return play


class Saboteur:
    """The three sockets, and what is still done properly."""

    def __init__(self, leash_fd: int, control_fd: int, data_fd: int) -> None:
        self.leash = socket.socket(fileno=leash_fd)
        self.control = socket.socket(fileno=control_fd)
        self.data = socket.socket(fileno=data_fd)
        self._decoder = FrameDecoder(64 << 20)
        self._read: list[Any] = []

    def greet(self) -> None:
        self.leash.send(wire.encode_body(wire.AnchorUp()))
        self.ready()

    def ready(self) -> None:
        self.control.send(wire.encode_body(wire.Ready(1, {})))

    def send(self, message: Any) -> None:
        self.data.sendall(wire.to_frame(message))

    def raw(self, *items: Any) -> None:
        """A message that no encoder of ours would make."""
        self.data.sendall(encode_frame(wire.encode_body(list(items))))

    def next(self) -> Any:
        while not self._read:
            data = self.data.recv(1 << 16)
            if not data:
                os._exit(0)  # the host has let go of us
            self._read += map(wire.decode_to_worker, self._decoder.feed(data))
        return self._read.pop(0)

    def until_eval(self) -> int:
        """Answer all requests up to the first eval; its id."""
        while not isinstance(message := self.next(), wire.Eval):
            self.send(wire.Done(message.request_id, None))
        return message.eval_id

    def done(self, eval_id: int, **changed: Any) -> wire.EvalDone:
        fields: dict[str, Any] = {
            "eval_id": eval_id, "text": "forged", "stdout": "", "kind": "value",
            "value": b'"forged"', "value_error": None, "error": None, "state": "kept",
            "cpu_s": 0.0, "peak_rss_bytes": 0, "notes": [],
        }  # fmt: skip
        return wire.EvalDone(**{**fields, **changed})

    def silence(self) -> None:
        """Say nothing until the host lets go."""
        while self.data.recv(1 << 16):
            pass
        os._exit(0)


# --- before an eval -----------------------------------------------------------------------------


@scene
def dies_before_hello(me: Saboteur) -> None:
    os._exit(3)


@scene
def says_garbage_on_the_leash(me: Saboteur) -> None:
    me.leash.send(b"\xff" * 100)
    me.silence()


@scene
def says_half_a_hello(me: Saboteur) -> None:
    me.leash.send(wire.encode_body(wire.AnchorUp())[:1])
    os._exit(3)


@scene
def says_garbage_instead_of_ready(me: Saboteur) -> None:
    me.leash.send(wire.encode_body(wire.AnchorUp()))
    me.control.send(b"\xff" * 100)
    me.silence()


@scene
def says_nothing_at_all(me: Saboteur) -> None:
    me.silence()


@scene
def greets_and_never_opens(me: Saboteur) -> None:
    me.greet()
    me.silence()


@scene
def dies_when_asked_to_open(me: Saboteur) -> None:
    me.greet()
    me.next()
    os._exit(3)


@scene
def opens_something_else(me: Saboteur) -> None:
    me.greet()
    me.send(wire.Done(me.next().request_id + 1, None))
    me.silence()


# --- in an eval ---------------------------------------------------------------------------------


def in_eval(play: Callable[[Saboteur, int], None]) -> None:
    """Register a scene that begins with an eval, and ends in silence."""

    def whole(me: Saboteur) -> None:
        me.greet()
        play(me, me.until_eval())
        me.silence()

    SCENES[play.__name__] = whole


@in_eval
def exits(me: Saboteur, eval_id: int) -> None:
    os._exit(3)


@in_eval
def is_killed(me: Saboteur, eval_id: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@in_eval
def crashes(me: Saboteur, eval_id: int) -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


@in_eval
def stops_in_mid_frame_and_exits(me: Saboteur, eval_id: int) -> None:
    frame = wire.to_frame(me.done(eval_id))
    me.data.sendall(frame[: len(frame) // 2])
    os._exit(0)


@in_eval
def stops_in_mid_frame_and_is_silent(me: Saboteur, eval_id: int) -> None:
    frame = wire.to_frame(me.done(eval_id))
    me.data.sendall(frame[: len(frame) // 2])


@in_eval
def is_silent(me: Saboteur, eval_id: int) -> None:
    pass


@in_eval
def sends_garbage(me: Saboteur, eval_id: int) -> None:
    me.data.sendall(bytes(range(256)) * 16)


@in_eval
def sends_empty_frames(me: Saboteur, eval_id: int) -> None:
    me.data.sendall(bytes(4096))


@in_eval
def claims_a_frame_of_4_gib(me: Saboteur, eval_id: int) -> None:
    me.data.sendall(struct.pack("<I", (1 << 32) - 1))


@in_eval
def nests_a_million_deep(me: Saboteur, eval_id: int) -> None:
    me.data.sendall(encode_frame(b"\x91" * 1_000_000))


@in_eval
def answers_another_eval(me: Saboteur, eval_id: int) -> None:
    me.send(me.done(eval_id + 1))


@in_eval
def answers_a_request_that_was_not_made(me: Saboteur, eval_id: int) -> None:
    me.send(wire.Done(eval_id, None))


@in_eval
def says_that_it_is_held_unasked(me: Saboteur, eval_id: int) -> None:
    me.send(wire.Held(eval_id))


@in_eval
def calls_a_tool_for_another_eval(me: Saboteur, eval_id: int) -> None:
    me.send(wire.ToolCall(eval_id + 1, 1, "tool", "{}"))


@in_eval
def calls_a_tool_that_there_is_none_of(me: Saboteur, eval_id: int) -> None:
    me.send(wire.ToolCall(eval_id, 1, "__import__", "{}"))


@in_eval
def calls_twice_with_one_id(me: Saboteur, eval_id: int) -> None:
    for _ in range(2):
        me.send(wire.ToolCall(eval_id, 1, "slow", "{}"))


@in_eval
def calls_more_tools_than_allowed(me: Saboteur, eval_id: int) -> None:
    for call_id in range(100):
        me.send(wire.ToolCall(eval_id, call_id, "tool", "{}"))


@in_eval
def sends_a_message_of_the_hosts(me: Saboteur, eval_id: int) -> None:
    me.send(wire.ToolAnswer(1, True, "1"))


@in_eval
def gives_fields_of_the_wrong_type(me: Saboteur, eval_id: int) -> None:
    me.raw(32, str(eval_id), "", "", "value", None, None, None, "kept", 0.0, 0, [])


@in_eval
def gives_times_that_are_no_numbers(me: Saboteur, eval_id: int) -> None:
    me.raw(32, eval_id, "", "", "value", None, None, None, "kept", float("nan"), 0, [])


@in_eval
def gives_a_text_over_the_cap(me: Saboteur, eval_id: int) -> None:
    me.send(me.done(eval_id, text="x" * BIG))


@in_eval
def gives_an_output_over_the_cap(me: Saboteur, eval_id: int) -> None:
    me.send(me.done(eval_id, stdout="x" * BIG))


@in_eval
def gives_a_value_over_the_cap(me: Saboteur, eval_id: int) -> None:
    me.send(me.done(eval_id, value=b'"' + b"x" * BIG + b'"'))


@in_eval
def gives_an_error_over_the_cap(me: Saboteur, eval_id: int) -> None:
    me.send(me.done(eval_id, error=wire.ErrorInfo("E", "x" * BIG, "")))


@in_eval
def gives_notes_over_the_cap(me: Saboteur, eval_id: int) -> None:
    me.raw(32, eval_id, "", "", "value", None, None, None, "kept", 0.0, 0, [""] * BIG)


@in_eval
def loses_its_state_without_a_reason(me: Saboteur, eval_id: int) -> None:
    me.send(me.done(eval_id, state="lost"))


@in_eval
def sends_a_huge_control_datagram(me: Saboteur, eval_id: int) -> None:
    me.control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BIG)
    me.control.send(bytes(100_000))


@in_eval
def sends_garbage_on_control(me: Saboteur, eval_id: int) -> None:
    me.control.send(b"\xff" * 100)


@in_eval
def reports_a_death_with_negative_numbers(me: Saboteur, eval_id: int) -> None:
    me.control.send(wire.encode_body([65, -1, -1, -1, -1.0, -1]))


@in_eval
def reports_a_death_that_no_kernel_gives(me: Saboteur, eval_id: int) -> None:
    me.control.send(wire.encode_body([65, 1, 1 << 62, 0, 0.0, 0]))


# --- after an answer ----------------------------------------------------------------------------


@in_eval
def answers_twice(me: Saboteur, eval_id: int) -> None:
    me.data.sendall(2 * wire.to_frame(me.done(eval_id)))


@in_eval
def claims_its_state_is_kept_and_leaves(me: Saboteur, eval_id: int) -> None:
    me.send(me.done(eval_id))
    os._exit(0)


@in_eval
def answers_and_is_never_ready_again(me: Saboteur, eval_id: int) -> None:
    me.send(me.done(eval_id))


@in_eval
def reports_a_death_with_huge_numbers(me: Saboteur, eval_id: int) -> None:
    most = (1 << 64) - 1
    me.control.send(wire.encode_body(wire.Died(most, 0x7F, most, 1e9, most)))


# --- who is who ---------------------------------------------------------------------------------


@scene
def lets_a_stranger_say_ready(me: Saboteur) -> None:
    """Ready comes from a process that has left the session; then nothing more happens."""
    me.leash.send(wire.encode_body(wire.AnchorUp()))
    me.ready()
    eval_id = me.until_eval()
    if os.fork() == 0:
        os.setsid()
        me.ready()
        time.sleep(600)  # a host that kills it by mistake ends it, and so does its test
    me.send(wire.Log(10, f"{eval_id}"))
    me.silence()


# --- floods -------------------------------------------------------------------------------------


@in_eval
def calls_tools_without_end(me: Saboteur, eval_id: int) -> None:
    call_id = 0
    while True:
        calls = [wire.ToolCall(eval_id, call_id + i, "tool", "{}") for i in range(1000)]
        call_id += len(calls)
        me.data.sendall(b"".join(map(wire.to_frame, calls)))


@in_eval
def calls_tools_with_large_inputs(me: Saboteur, eval_id: int) -> None:
    args = '{"a":"' + "x" * 900_000 + '"}'
    for call_id in range(1, 1000):
        me.send(wire.ToolCall(eval_id, call_id, "slow", args))


@in_eval
def logs_without_end(me: Saboteur, eval_id: int) -> None:
    frame = wire.to_frame(wire.Log(10, "x" * 8000))
    while True:
        me.data.sendall(frame)


@in_eval
def sends_zeros_without_end(me: Saboteur, eval_id: int) -> None:
    while True:
        me.data.sendall(bytes(BIG))


@in_eval
def sends_frames_of_the_cap_without_end(me: Saboteur, eval_id: int) -> None:
    # What a host allows is no secret: see SessionOptions.max_frame_bytes.
    size = int(sys.argv[5])
    while True:
        me.data.sendall(struct.pack("<I", size))
        for _ in range(0, size, BIG):
            me.data.sendall(b"\x90" * min(BIG, size))


@in_eval
def says_ready_without_end(me: Saboteur, eval_id: int) -> None:
    while True:
        me.ready()


@in_eval
def reports_deaths_without_end(me: Saboteur, eval_id: int) -> None:
    while True:
        me.control.send(wire.encode_body(wire.Died(1, 9, 0, 0.0, 0)))


def _stuff(sock: socket.socket, body: bytes, count: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    fds = array.array("i", [null] * 250)
    for _ in range(count // len(fds)):
        while True:
            try:
                sock.sendmsg([body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
                break
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:  # an ordinary user's, until they are read
                    raise
                time.sleep(0.001)


@in_eval
def stuffs_descriptors_into_data(me: Saboteur, eval_id: int) -> None:
    log = wire.to_frame(wire.Log(10, "x"))
    for byte in (log * 10)[: len(log) * 10]:
        _stuff(me.data, bytes([byte]), 250)
    _stuff(me.data, b"\x00", 10_000)


@in_eval
def stuffs_descriptors_into_control(me: Saboteur, eval_id: int) -> None:
    _stuff(me.control, wire.encode_body(wire.Ready(1, {})), 10_000)


@in_eval
def stuffs_descriptors_into_the_leash(me: Saboteur, eval_id: int) -> None:
    _stuff(me.leash, wire.encode_body(wire.AnchorUp()), 10_000)


if __name__ == "__main__":
    name, *numbers = sys.argv[1:5]
    try:
        SCENES[name](Saboteur(*map(int, numbers)))
    except (OSError, ProtocolError):
        os._exit(1)  # the host hung up
