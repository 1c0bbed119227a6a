"""Fills the holes in the zygote's heaps, so that what a worker allocates lies together.

Loading leaves free space between what stays, all over both heaps: Python's own, and the C
library's, in which the engine lives. A worker would put its first objects there, one to a page, and
each is a page that it no longer shares with the others. So all of that space is taken, for good.
"""

import ctypes
from typing import Final

_PYTHON_STEP_BYTES: Final = 16
_PYTHON_LARGEST_BYTES: Final = 512
_POOL_BYTES: Final = 16 << 10  # from Python 3.10 on
_POOL_HEADER_BYTES: Final = 48
_C_SIZES: Final = (*range(65_536, 4096, -4096), *range(4096, 512, -64), *range(512, 8, -16))
_C_OVERHEAD_BYTES: Final = 8
# What is never taken from a hole, and not mapped by itself either.
_C_TOP_BYTES: Final = 120_000
# Where an allocator is none that we know, this is the end of it.
_MOST: Final = 20_000


def fill_holes() -> None:
    """Take what is free between what is in use."""
    _fill_python()
    _fill_c()


def _fill_python() -> None:
    allocate = ctypes.pythonapi.PyObject_Malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    for size in range(_PYTHON_STEP_BYTES, _PYTHON_LARGEST_BYTES + 1, _PYTHON_STEP_BYTES):
        for _ in range(_MOST):
            # The first block of a pool: no pool in use had room.
            if (allocate(size) or 0) % _POOL_BYTES == _POOL_HEADER_BYTES:
                break


def _fill_c() -> None:
    allocate = ctypes.PyDLL(None).malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    top = allocate(_C_TOP_BYTES) or 0
    for size in _C_SIZES:
        for _ in range(_MOST):
            if (allocate(size - _C_OVERHEAD_BYTES) or 0) > top:
                break
