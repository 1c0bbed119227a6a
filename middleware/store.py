"""Where the bytes of snapshots are, if not in the graph's state: a folder, or a LangGraph store.

Everything is named by its hash, so that nothing is ever overwritten with something else and no
checkpoint depends on another. Nothing is deleted: who prunes checkpoints knows what is unused.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pathlib
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from qjs_pool.large import slices

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, Item

_INLINE_BYTES: Final = 256 << 10  # base64 of that much takes a millisecond: more, in a thread
_SLICE_BYTES: Final = 3 << 16  # a multiple of three, so that only the last one is padded
_NAMESPACE: Final = ("qjs_pool", "snapshots")


class Store(Protocol):
    """Puts and gets blobs by their hashes; what is not there is left out."""

    def put(self, blobs: Mapping[str, bytes]) -> None: ...
    def get(self, names: Iterable[str]) -> dict[str, bytes]: ...
    async def aput(self, blobs: Mapping[str, bytes]) -> None: ...
    async def aget(self, names: Iterable[str]) -> dict[str, bytes]: ...


class FolderStore:
    """One file per blob, in folders by the first two digits of the hash."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = pathlib.Path(folder)

    def put(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            path = self._path(name)
            if _holds(path, data):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed when complete: nobody ever reads half a file.
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    # Or the name may outlive a power cut, and the bytes not.
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise

    def get(self, names: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for name in names:
            try:
                found[name] = self._path(name).read_bytes()
            except FileNotFoundError:
                continue
        return found

    async def aput(self, blobs: Mapping[str, bytes]) -> None:
        await asyncio.to_thread(self.put, blobs)

    async def aget(self, names: Iterable[str]) -> dict[str, bytes]:
        return await asyncio.to_thread(self.get, names)

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / name[:2] / name[2:]


class GraphStore:
    """A LangGraph store. Its values are JSON, so bytes are kept as base64."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    def put(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            self._store.put(_NAMESPACE, name, _boxed(data), index=False)

    def get(self, names: Iterable[str]) -> dict[str, bytes]:
        return _unboxed({name: self._store.get(_NAMESPACE, name) for name in names})

    async def aput(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            if len(data) <= _INLINE_BYTES:
                boxed = _boxed(data)
            else:
                boxed = await asyncio.to_thread(_boxed, data)
            await self._store.aput(_NAMESPACE, name, boxed, index=False)

    async def aget(self, names: Iterable[str]) -> dict[str, bytes]:
        items = {name: await self._store.aget(_NAMESPACE, name) for name in names}
        if sum(map(_size, items.values())) <= _INLINE_BYTES:
            return _unboxed(items)
        return await asyncio.to_thread(_unboxed, items)


def _holds(path: pathlib.Path, data: bytes) -> bool:
    """Whether it is there undamaged: a disk that was full leaves files that have the name only."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def _size(item: Item | None) -> int:
    data = None if item is None else item.value.get("data")
    return sum(map(len, _texts(data)))


def _boxed(data: bytes) -> dict[str, Any]:
    # In slices, and a list of them where there are several: a text of it all is made in one go,
    # which keeps every other thread, an event loop's too, from running.
    texts = [base64.b64encode(part).decode("ascii") for part in slices(data, _SLICE_BYTES)]
    return {"data": texts[0] if len(texts) == 1 else texts}


def _texts(data: Any) -> list[str]:
    """What was stored, text by text; nothing if it is nothing of ours."""
    texts = data if isinstance(data, list) else [data]
    return texts if all(isinstance(text, str) for text in texts) else []


def _unboxed(items: Mapping[str, Item | None]) -> dict[str, bytes]:
    found = {}
    for name, item in items.items():
        texts = _texts(None if item is None else item.value.get("data"))
        if texts:
            try:
                found[name] = b"".join(map(_decoded, texts))
            except ValueError:
                continue  # as good as missing
    return found


def _decoded(text: str) -> bytes:
    time.sleep(0)  # whoever waits for the interpreter's lock runs now
    return base64.b64decode(text, validate=True)
