"""The journal of a suspended eval, kept with the checkpoint of its interrupt.

It is a write of its own beside the interrupt's, under a task id that no task of the graph has: so
it lives as long as the checkpoint, whatever saver that is in, and no client that shows the
interrupt is shown it. It is signed like a snapshot, and bound to the eval it is of.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import zstandard
from langchain_core.runnables import RunnableConfig

from qjs_pool import snapshots
from qjs_pool.errors import QjsPoolError
from qjs_pool.journal import Journal

from .interrupts import Asked, Given, Question
from .seam import BaseCheckpointSaver, CheckpointTuple, Command

_CHANNEL: Final = "_qjs_pool_journal"
_ENVELOPE_BYTES: Final = 1 << 16
# What is kept where the journal is too large: without it the eval would run anew.
NO_JOURNAL: Final = b""


class JournalRejected(QjsPoolError):
    """The journal of a suspended eval cannot be gone on from; nothing was run."""


@dataclasses.dataclass(frozen=True)
class SuspendedEval:
    """What another process needs to go on with an eval.

    `round`: how many interrupts of it were answered before. `base`: the state it started from.
    """

    round: int
    base: str
    asked: Mapping[int, Asked]  # by the number of the call
    commands: Sequence[tuple[int, str, Command[Any]]]
    journal: Journal


class Place:
    """Where the journals of one eval are kept: its checkpoint, in its graph's saver."""

    def __init__(self, saver: BaseCheckpointSaver[Any], config: RunnableConfig, call_id: str):
        conf = config["configurable"]
        namespace = str(conf.get("checkpoint_ns") or "")
        graph = namespace.rpartition("|")[0]
        self._saver = saver
        self._eval = f"{namespace} {call_id}"  # with the id of its task
        self._config: RunnableConfig = {
            "configurable": {
                "thread_id": str(conf["thread_id"]),
                "checkpoint_ns": graph,
                "checkpoint_id": conf["checkpoint_map"][graph],
            }
        }

    @property
    def context(self) -> str:
        """What the signature is bound to."""
        return f"journal {self._config['configurable']['thread_id']} {self._eval}"

    def _task_id(self, round_: int) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._eval} {round_}"))

    def put(self, round_: int, blob: bytes) -> None:
        """Keep one."""
        self._saver.put_writes(self._config, [(_CHANNEL, blob)], self._task_id(round_))

    async def aput(self, round_: int, blob: bytes) -> None:
        """As `put`."""
        await self._saver.aput_writes(self._config, [(_CHANNEL, blob)], self._task_id(round_))

    def get(self, rounds: int) -> bytes | None:
        """The one of the latest round, of `rounds` at most."""
        return self._latest(self._saver.get_tuple(self._config), rounds)

    async def aget(self, rounds: int) -> bytes | None:
        """As `get`."""
        return self._latest(await self._saver.aget_tuple(self._config), rounds)

    def _latest(self, kept: CheckpointTuple | None, rounds: int) -> bytes | None:
        writes = {} if kept is None else {
            task_id: value
            for task_id, channel, value in kept.pending_writes or ()
            if channel == _CHANNEL and isinstance(value, bytes)
        }  # fmt: skip
        for round_ in range(rounds, -1, -1):
            if (blob := writes.get(self._task_id(round_))) is not None:
                return blob
        return None

    # --- what is kept ---------------------------------------------------------------------------

    def sealed(self, record: SuspendedEval, keys: Sequence[bytes], max_bytes: int) -> bytes:
        """The bytes of a record; `NO_JOURNAL` for a larger one."""
        plain = {
            "round": record.round,
            "base": record.base,
            "asked": [
                [number, [dataclasses.astuple(one) for one in asked.questions],
                 [asked.given.decision, list(asked.given.answers)]]
                for number, asked in record.asked.items()
            ],
            "commands": [list(one) for one in record.commands],
        }  # fmt: skip
        kind, data = self._saver.serde.dumps_typed(plain)
        body = msgspec.msgpack.encode([kind, data, msgspec.msgpack.encode(record.journal)])
        if len(body) > max_bytes:
            return NO_JOURNAL
        return snapshots.seal(
            zstandard.ZstdCompressor(level=3).compress(body), keys=keys, context=self.context
        )

    def opened(self, blob: bytes, keys: Sequence[bytes], max_bytes: int) -> SuspendedEval:
        """The record in those bytes.

        Raises:
            JournalRejected: it is damaged, signed by nobody we know, or another eval's.
        """
        if blob == NO_JOURNAL:
            raise JournalRejected(
                "the suspended eval cannot be gone on with: its worker is gone, and its journal "
                "was too large to be kept (max_snapshot_bytes)"
            )
        try:
            packed = snapshots.open_sealed(
                blob, keys=keys, context=self.context, max_bytes=max_bytes + _ENVELOPE_BYTES
            )
            if zstandard.frame_content_size(packed) > max_bytes + _ENVELOPE_BYTES:
                raise JournalRejected("it is too large")
            body = zstandard.ZstdDecompressor().decompress(packed)
            kind, data, journal = msgspec.msgpack.decode(body, type=tuple[str, bytes, bytes])
            plain = self._saver.serde.loads_typed((kind, data))
            return SuspendedEval(
                plain["round"],
                plain["base"],
                {
                    number: Asked(
                        tuple(_question(*fields) for fields in questions),
                        Given(decision, tuple(answers)),
                    )
                    for number, questions, (decision, answers) in plain["asked"]
                },
                [(index, call_id, command) for index, call_id, command in plain["commands"]],
                msgspec.msgpack.decode(journal, type=Journal),
            )
        except QjsPoolError as error:
            raise JournalRejected(f"the suspended eval's journal is refused: {error}") from None
        except Exception as error:
            raise JournalRejected(
                f"the suspended eval's journal cannot be read: {error}"
            ) from error


def place_of(config: RunnableConfig, call_id: str) -> Place | None:
    """Where an eval's journal goes; None without a checkpointer, and then it is not suspended."""
    conf = config.get("configurable") or {}
    saver = conf.get("__pregel_checkpointer")
    graph = str(conf.get("checkpoint_ns") or "").rpartition("|")[0]
    if (
        not isinstance(saver, BaseCheckpointSaver)
        or conf.get("thread_id") is None
        or graph not in (conf.get("checkpoint_map") or {})
    ):
        return None
    return Place(saver, config, call_id)


def _question(
    id_: str, tool: str, value: Any, allowed: Sequence[str] | None, nested: str | None
) -> Question:
    return Question(id_, tool, value, None if allowed is None else tuple(allowed), nested)
