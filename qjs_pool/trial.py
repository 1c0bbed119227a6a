"""Whether a snapshot can be restored, tried out in a worker of its own where that is in doubt.

A state may take more memory when it is restored than it took before (what can't be written comes
back as a tombstone, which is larger than most closures), and reading it takes some besides. That it
is refused would be found out in another turn or process, where the state is nowhere any more.
"""

from __future__ import annotations

import contextlib
import select
from typing import TYPE_CHECKING, Final

from .conversation import Conversation
from .errors import SnapshotRejected, SpawnError
from .steps import Steps
from .wire import messages as wire

if TYPE_CHECKING:
    from .core import Core

# Heap that a byte of a document takes at most, as measured: a tombstone 1,350 for its 34 bytes, a
# function 1,600 for its 70, an `undefined` in a list 110 for its 6 while it is read.
_HEAP_PER_BYTE: Final = 48
REFUSED: Final = "the snapshot was refused: "


def is_in_doubt(written: wire.Done, memory_bytes: int) -> bool:
    """Whether a state of that size might need more memory than there is."""
    return written.size_bytes * _HEAP_PER_BYTE > memory_bytes


def try_out(core: Core, talk: Conversation, heir: Core, pieces: list[bytes]) -> Steps[None]:
    """Restore the pieces of a body in `heir`, and close it. Driven as an operation of `core`.

    Raises:
        SnapshotRejected: that is not possible.
    """
    core.poller.register(heir.poller, select.EPOLLIN)
    steps = heir.restore(pieces)
    try:
        deadline = next(steps)
        while True:
            yield deadline
            talk.look()
            deadline = steps.send(heir.poller.poll(0))
    except StopIteration:
        return
    except SpawnError:
        return  # no room for another worker now: most snapshots can be restored
    except SnapshotRejected as error:
        raise SnapshotRejected(
            "no snapshot was taken, as it could not be restored: "
            f"{str(error).removeprefix(REFUSED)}; keep less, or raise Limits.memory"
        ) from None
    finally:
        steps.close()
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile, and so is the poller
            core.poller.unregister(heir.poller)
        heir.close()
