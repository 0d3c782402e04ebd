"""Frames of the gateway: plain JSON, or one compressed stream over the whole connection."""

from __future__ import annotations

import importlib
import json
import zlib
from types import ModuleType
from typing import Any, Protocol


class Packer(Protocol):
    """Makes a frame of an object: text stays text, a compressed stream is bytes."""

    def pack(self, payload: object) -> str | bytes: ...


class Plain:
    """No compression."""

    def pack(self, payload: object) -> str | bytes:
        return json.dumps(payload, separators=(",", ":"))


class Zlib:
    """`zlib-stream`: one context for the connection, each message ends in a sync flush."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj()

    def pack(self, payload: object) -> str | bytes:
        text = json.dumps(payload, separators=(",", ":")).encode()
        return self._stream.compress(text) + self._stream.flush(zlib.Z_SYNC_FLUSH)


class Zstd:
    """`zstd-stream`: as zlib, with block flushes."""

    def __init__(self, library: ModuleType) -> None:
        self._stream: Any
        if hasattr(library, "CompressionParameter"):
            self._stream, self._block = library.ZstdCompressor(), library.ZstdCompressor.FLUSH_BLOCK
        else:
            self._stream, self._block = library.ZstdCompressor().compressobj(), library.COMPRESSOBJ_FLUSH_BLOCK

    def pack(self, payload: object) -> str | bytes:
        text = json.dumps(payload, separators=(",", ":")).encode()
        packed: bytes = self._stream.compress(text) + self._stream.flush(self._block)
        return packed


def zstd() -> ModuleType | None:
    """A library for zstd, where one is installed."""
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def packer(compress: str) -> Packer | None:
    """What the client asked for with `compress=`; None where it cannot be had here."""
    if not compress:
        return Plain()
    if compress == "zlib-stream":
        return Zlib()
    library = zstd() if compress == "zstd-stream" else None
    return Zstd(library) if library is not None else None
