"""What the machine has left, read when it stands still."""

import time
from typing import Final

import psutil

_STILL_BYTES: Final = 1 << 20
_EVERY_S: Final = 0.25
_MOST_S: Final = 10.0


def available() -> int:
    """Bytes of MemAvailable, once they change by less than a mebibyte between two readings.

    A process that ends, an earlier benchmark's as well, gives its memory back some time after.
    """
    end = time.monotonic() + _MOST_S
    last = psutil.virtual_memory().available
    while True:
        time.sleep(_EVERY_S)
        now = psutil.virtual_memory().available
        if abs(now - last) < _STILL_BYTES or time.monotonic() > end:
            return now
        last = now
