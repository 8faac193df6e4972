"""Memory allocator tuning: large blocks go back to the operating system when they are freed.

glibc maps large blocks one by one and gives them back, but each that is freed raises its idea of what is large: after
one body of 16 MB, others of that size are cut out of heaps, one a thread, which keep what was freed. With a fixed bound
the process is about as large as what it holds.
"""

from __future__ import annotations

import ctypes
import sys

MAPPED_BYTES = 256 * 1024
"""A block of this size is mapped by itself: at least as long as a page of a table or a piece of a text."""
TRIMMED_BYTES = 1024 * 1024
"""Free memory at the end of a heap that is kept for later allocations, in bytes."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def return_large_blocks() -> bool:
    """Ask for that, where the C library is glibc; whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, TRIMMED_BYTES))
