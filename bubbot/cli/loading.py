"""Modules are no garbage: while they load, looking for it takes a tenth of a short command."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Collect no garbage until the block ends, and later none among what was loaded before that."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
