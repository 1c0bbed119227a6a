"""Every message of the protocol as a typed struct, and the codecs that turn bodies into them.

Bodies are MessagePack arrays whose first item is the message's tag; `msgspec` checks shape and
types, so a field that is not what it says never gets past `decode_*`. Nothing here is trusted
because it decoded: sizes are checked again by the host, and a pid is never sent at all (the
kernel vouches for the sender).

Times end in `_s` (seconds), sizes in `_bytes`. `eval_id`, `call_id` count up within a session.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from .frames import ProtocolError, encode_frame

PROTOCOL: Final = 1

# Exit statuses of a worker. Anything else is a crash.
EXIT_LEFT: Final = 0  # the host closed the session, or a newer keeper took over
EXIT_REFUSED: Final = 64  # the lockdown did not hold: it must not serve
EXIT_ROLLBACK: Final = 75  # the result is sent; this state must not live on
EXIT_OUT_OF_MEMORY: Final = 76  # the interpreter itself had no memory left
EXIT_PROTOCOL: Final = 77  # the host sent what it may not
EXIT_INTERNAL: Final = 78  # a bug of ours; the traceback went out as a Log

State = Literal["kept", "lost"]
Clock = Literal["off", "frozen", "real"]
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
WaitStatus = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
# A list costs its reader more than its bytes: its length is checked before it is made.
_Notes = Annotated[list[str], msgspec.Meta(max_length=16)]


class _Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Base of all messages; each subclass has a tag of its own."""


# --- data stream, host to worker ---------------------------------------------------------------


class Tool(msgspec.Struct, array_like=True, frozen=True):
    """A tool as the guest sees it: `name` is the JavaScript name, `alias` the host's.

    One that `is_global` is called by its name alone; `tools` does not list it.
    `holds`: an eval that may be held stops by itself where it has called it, until it is resumed.
    """

    name: str
    alias: str
    required: list[str] | None = None  # required fields of its input, where known
    description: str = ""
    is_global: bool = False
    holds: bool = False


class Open(_Message, tag=1, frozen=True):
    """First message of a session, and again whenever its options change."""

    request_id: int
    memory_bytes: int
    stack_bytes: int
    result_chars: int
    console_chars: int
    value_bytes: int
    value_nodes: int
    durable: bool
    clock: Clock
    seed: str  # hexadecimal; a new stream of Math.random, or empty to go on with the old one
    tools: list[Tool]
    modules: dict[str, dict[str, str]]  # scope -> file name -> source


class Eval(_Message, tag=2, frozen=True):
    """Run one program. `cpu_s` and `wall_s` are this eval's budgets, None for none.

    `seed`: hexadecimal; the stream of Math.random for this eval, or empty to go on with the old.
    """

    eval_id: int
    code: str
    cpu_s: float | None
    wall_s: float | None
    host_calls: int | None
    want_value: bool
    seed: str = ""
    may_hold: bool = False


class ToolAnswer(_Message, tag=3, frozen=True):
    """The answer to a ToolCall. `payload` is JSON: the value, or `[name, message]` of an error."""

    call_id: int
    ok: bool
    payload: str


class SetGlobal(_Message, tag=4, frozen=True):
    """Put a host value into the session as a global."""

    request_id: int
    name: str
    value: str  # JSON, see values.py


class Fork(_Message, tag=5, frozen=True):
    """Make a copy of the session; data and control socket of the copy come after the answer.

    `parked`: the copy is as after Park.
    """

    request_id: int
    parked: bool = False


class Snapshot(_Message, tag=6, frozen=True):
    """Write the state down: SnapshotParts, then Done. `max_bytes` bounds it before compression."""

    request_id: int
    max_bytes: int
    cpu_s: float


class Restore(_Message, tag=7, frozen=True):
    """A piece of a snapshot for a session that has run nothing; with the last one it is restored.

    `max_bytes` bounds what all of it may unpack to.
    """

    request_id: int
    piece: bytes
    more: bool
    max_bytes: int
    cpu_s: float


class Hold(_Message, tag=8, frozen=True):
    """Stop the eval where it waits: a call of it waits for a person. Answered with Held.

    The eval's clocks and timers stand still from here, or from its call of a tool that holds, to
    the Resume.
    """

    eval_id: int


class Resume(_Message, tag=9, frozen=True):
    """Go on with the eval that is held; the answers follow.

    `counted_s`: seconds of the time it was held that tools worked, and which its clocks count.
    """

    eval_id: int
    counted_s: Seconds


class Park(_Message, tag=10, frozen=True):
    """Nothing is asked until Unpark: the worker's keeper leaves, and its memory with it. No answer.

    A worker that dies while it is parked takes its state along; for a state that is written down.
    """


class Unpark(_Message, tag=11, frozen=True):
    """Leave a keeper behind again, and go on."""

    request_id: int


ToWorker = (
    Open | Eval | ToolAnswer | SetGlobal | Fork | Snapshot | Restore | Hold | Resume | Park | Unpark
)

# --- data stream, worker to host ---------------------------------------------------------------


class ErrorInfo(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """An error of the guest's: what `GuestError` is made of."""

    name: str
    message: str
    stack: str


class EvalDone(_Message, tag=32, frozen=True):
    """The outcome of an eval. State "lost": the worker leaves now and its state with it."""

    eval_id: int
    text: str
    stdout: str
    kind: Literal["value", "handle"]
    value: bytes | None  # JSON, see values.py; None when not asked for or not encodable
    value_error: tuple[str, str] | None  # class and message when the value cannot cross
    error: ErrorInfo | None
    state: State
    cpu_s: Seconds
    peak_rss_bytes: Count
    notes: _Notes


class ToolCall(_Message, tag=33, frozen=True):
    """The guest called a tool. `name` is looked up, never imported or evaluated."""

    eval_id: int
    call_id: int
    name: str
    args: str  # JSON, see values.py


class Done(_Message, tag=34, frozen=True):
    """The request was carried out, or `problem` says why not.

    `size_bytes`: of the documents of a snapshot, before compression.
    """

    request_id: int
    problem: str | None
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0


class Log(_Message, tag=35, frozen=True):
    """A line for the logger `qjs_pool.worker`. Plain text, never a pickled record."""

    level: Annotated[int, msgspec.Meta(ge=0, le=50)]
    text: Annotated[str, msgspec.Meta(max_length=8192)]


class SnapshotPart(_Message, tag=36, frozen=True):
    """The next piece of the snapshot that was asked for."""

    request_id: int
    piece: bytes


class Held(_Message, tag=37, frozen=True):
    """The eval does nothing until its Resume: no job is ready, and all its calls are sent."""

    eval_id: int


FromWorker = EvalDone | ToolCall | Done | Log | SnapshotPart | Held

# --- control socket (one datagram a message): keeper and host ----------------------------------


class Ready(_Message, tag=64, frozen=True):
    """The worker that serves evals now; the kernel names its pid. `layers` is its lockdown."""

    generation: int
    layers: dict[str, str]


class Died(_Message, tag=65, frozen=True):
    """The keeper's child ended. `unread_bytes`: what it had not yet read of the data stream."""

    generation: int
    wait_status: WaitStatus
    unread_bytes: Count
    cpu_s: Seconds
    peak_rss_bytes: Count


class Refused(_Message, tag=66, frozen=True):
    """The worker does not serve: a layer or limit is missing, or worker code did not load."""

    layer: str
    reason: str


class Takeover(_Message, tag=67, frozen=True):
    """Host to keeper: fork a new worker on the data socket that comes with this."""


FromKeeper = Ready | Died | Refused
ToKeeper = Takeover

# --- leash: anchor to host; its end tells each that the other is gone --------------------------


class AnchorUp(_Message, tag=80, frozen=True):
    """First word of the anchor, before any worker exists: the kernel names its pid."""


class FirstWorkerEnded(_Message, tag=81, frozen=True):
    """The worker that the anchor itself started ended, and nobody else will report it."""

    wait_status: WaitStatus
    cpu_s: Seconds
    peak_rss_bytes: Count


FromAnchor = AnchorUp | FirstWorkerEnded

# --- zygote socket (one datagram a message) -----------------------------------------------------


class Base(_Message, tag=96, frozen=True):
    """Host to zygote, once: what the base image holds. Worker functions come pickled.

    `options`: what most sessions will be opened with. An Open that says the same changes nothing.
    """

    sys_path: list[str]
    preload: str
    functions: dict[str, bytes]
    skip_layers: list[str]
    options: Open


class Spawn(_Message, tag=97, frozen=True):
    """Host to zygote: start a session; its leash, control and data sockets come with this."""

    memory_bytes: int
    stack_bytes: int
    cpu_backstop_s: int | None
    required_layers: list[str]
    durable: bool
    idle: bool  # nobody waits for it


class ZygoteUp(_Message, tag=98, frozen=True):
    """The zygote is ready to spawn, or `problem` says why it is not."""

    protocol: int
    layers: dict[str, str]
    problem: str | None


ToZygote = Base | Spawn
FromZygote = ZygoteUp


def _plain(value: object) -> object:
    # Hosts have text of types derived from str, for markup and the like.
    if isinstance(value, str):
        return str.__str__(value)
    raise NotImplementedError(f"a {type(value).__name__} in a message")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
encode_body: Final = _encoder.encode


def to_frame(message: ToWorker | FromWorker) -> bytes:
    """A message for the data stream."""
    return encode_frame(encode_body(message))


def _decoder(kind: Any, what: str) -> Callable[[bytes], Any]:
    decode = msgspec.msgpack.Decoder(kind).decode

    def decode_body(body: bytes) -> Any:
        try:
            return decode(body)
        # RecursionError: a body nested deeper than the codec goes.
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise ProtocolError(f"not a message of the {what}: {error}") from None

    return decode_body


decode_to_worker: Callable[[bytes], ToWorker] = _decoder(ToWorker, "data stream")
decode_from_worker: Callable[[bytes], FromWorker] = _decoder(FromWorker, "data stream")
decode_from_keeper: Callable[[bytes], FromKeeper] = _decoder(FromKeeper, "control socket")
decode_to_keeper: Callable[[bytes], ToKeeper] = _decoder(ToKeeper, "control socket")
decode_from_anchor: Callable[[bytes], FromAnchor] = _decoder(FromAnchor, "leash")
decode_to_zygote: Callable[[bytes], ToZygote] = _decoder(ToZygote, "zygote socket")
decode_from_zygote: Callable[[bytes], FromZygote] = _decoder(FromZygote, "zygote socket")
