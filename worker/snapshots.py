"""Snapshots, on the worker's side: the engine's documents, packed; and back.

What belongs here: budgets, sizes and packing. What a document says is the prelude's business;
hashes and signatures are the host's, since a worker's word for them would be worth nothing.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from qjs_pool.wire import documents as wire_documents
from qjs_pool.wire.documents import BadDocument, Global, Manifest

from .engine import Engine, EngineOutOfMemory, Interrupted

# Taking in a piece copies it some times, in the host's event loop: this much is a millisecond.
PIECE_BYTES: Final = 1 << 18
# Room for the survey's tables and the text, next to a heap that may be full: as much for reading
# as for writing, or what was written might not be read again.
_HEADROOM_BYTES: Final = 16 << 20

_Listed = tuple[list[tuple[str, str, int, float]], list[str]]
_decode_listed: Final = msgspec.json.Decoder(_Listed).decode


class SnapshotProblem(Exception):
    """The snapshot can't be taken or restored; the message is for the host's caller."""


class _Budget:
    """CPU time for a number of calls into the engine."""

    def __init__(self, engine: Engine, cpu_s: float) -> None:
        self._engine = engine
        self._end = time.process_time() + cpu_s

    def call(self, entry: Any, *args: Any) -> Any:
        left = self._end - time.process_time()
        if left <= 0:
            raise Interrupted("no CPU time left")
        self._engine.set_cpu(left)
        return entry(*args)


class Snapshots:
    """Takes and restores snapshots of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._survey = engine.entry("snapshot")
        self._part = engine.entry("snapshotPart")
        self._restore_part = engine.entry("restorePart")
        self._restore_globals = engine.entry("restoreGlobals")

    def take(self, memory_bytes: int, max_bytes: int, cpu_s: float) -> tuple[bytes, int]:
        """The state as a body (see `wire.documents`), and the bytes of its documents as text.

        Raises:
            SnapshotProblem: it is too large, or takes too much time or memory.
        """
        engine = self._engine
        budget = _Budget(engine, cpu_s)
        engine.set_memory(_with_text(memory_bytes))
        try:
            about = budget.call(self._survey, max_bytes)
            if about.startswith("!"):
                raise SnapshotProblem(_too_large(max_bytes))
            return self._packed(_decode_listed(about), max_bytes, budget)
        except Interrupted:
            raise SnapshotProblem(f"taking it needs more than {cpu_s:g} s of CPU time") from None
        except EngineOutOfMemory:
            raise SnapshotProblem(
                f"writing the state down takes more memory than the "
                f"{_with_text(memory_bytes) / (1 << 20):g} MiB that there are for it under the "
                f"memory limit of {memory_bytes / (1 << 20):g} MiB; keep less, or raise "
                f"Limits.memory"
            ) from None
        finally:
            engine.set_cpu(None)
            engine.set_memory(memory_bytes)

    def _packed(self, listed: _Listed, max_bytes: int, budget: _Budget) -> tuple[bytes, int]:
        found, modules = listed
        sizes: list[int] = []
        documents: list[bytes] = []
        left = max_bytes
        for number in range(1 + max((item[2] for item in found), default=-1)):
            data = budget.call(self._part, number).encode()
            left -= len(data)
            if left < 0:
                raise SnapshotProblem(_too_large(max_bytes))
            sizes.append(len(data))
            documents.append(wire_documents.store(data))
        manifest = Manifest(
            wire_documents.FORMAT,
            [
                Global(name, kind, document, round(share * sizes[document]))
                for name, kind, document, share in found
            ],
            modules,
        )
        stored = wire_documents.store(wire_documents.encode_manifest(manifest))
        return wire_documents.join(stored, documents), sum(sizes)

    def restore(
        self,
        body: bytes,
        memory_bytes: int,
        max_bytes: int,
        cpu_s: float,
        import_modules: Callable[[list[str]], None],
    ) -> None:
        """Make the globals of a body in this engine, which has run nothing yet.

        Raises:
            SnapshotProblem: the body is damaged, hostile, or too large for this session.
        """
        engine = self._engine
        budget = _Budget(engine, cpu_s)
        engine.set_memory(_with_text(memory_bytes))
        left = max_bytes
        try:
            head, documents = wire_documents.split(body)
            data = wire_documents.unstore(head, wire_documents.MAX_MANIFEST_BYTES)
            manifest = wire_documents.decode_manifest(data)
            if manifest.modules:
                import_modules(manifest.modules)
            for stored in documents:
                data = wire_documents.unstore(stored, left)
                left -= len(data)
                text = data.decode()
                del data  # the engine makes a copy of its own
                self._check(budget.call(self._restore_part, text))
                del text
            order = [item.document for item in manifest.globals]
            self._check(budget.call(self._restore_globals, msgspec.json.encode(order).decode()))
            while budget.call(engine.run_job):  # what a source may have queued
                pass
        except (BadDocument, UnicodeDecodeError) as error:
            raise SnapshotProblem(str(error)) from None
        except Interrupted:
            message = f"restoring it needs more than {cpu_s:g} s of CPU time"
            raise SnapshotProblem(message) from None
        except EngineOutOfMemory:
            raise SnapshotProblem(_does_not_fit(memory_bytes)) from None
        finally:
            engine.set_cpu(None)
            engine.set_memory(memory_bytes)
        if not engine.can_allocate():
            raise SnapshotProblem(_does_not_fit(memory_bytes))

    def _check(self, answer: int | str) -> None:
        if answer == "!memory":
            raise EngineOutOfMemory
        if isinstance(answer, str):
            raise SnapshotProblem(answer[:2000])


def _does_not_fit(memory_bytes: int) -> str:
    return f"it does not fit into the memory limit of {memory_bytes / (1 << 20):g} MiB"


def _with_text(memory_bytes: int) -> int:
    return memory_bytes + memory_bytes // 2 + _HEADROOM_BYTES


def _too_large(max_bytes: int) -> str:
    return f"the state takes more than {max_bytes} bytes (Limits.snapshot_bytes)"
