"""The child process of the extra `embeddings`: all-MiniLM-L6-v2 on numpy, and the file with its vectors.

`bubbot.models.embeddings.index` starts it as `python -P worker.py OPTIONS`; OPTIONS is a JSON object with `weights`, the
folder of the model, `file`, where the vectors are kept, and `memory_bytes`, the most it may have. It imports nothing of
bubbot. A line in is one of

    {"coverage": TAPE}                                      how far the file goes
    {"add": TAPE, "passages": [[ID, TEXT], ...], "coverage": [ID, MARK]}
    {"forget": TAPE}
    {"find": TAPE, "text": TEXT, "before": ID, "limit": N}

and the line out `{"coverage": [ID, MARK]}`, `{"done": true}`, `{"found": [[ID, LIKENESS], ...]}` or `{"error": TEXT}`.
It exits when its stdin closes.

The model is a BERT of six layers: its encoder takes some forty lines of matrices. The libraries for it take gigabytes.
"""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import sys
from collections import OrderedDict
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

Floats: TypeAlias = NDArray[np.float32]

NICENESS = 5
MAX_TOKENS = 128
"""Of a passage; the model was trained for these."""
LAYERS, HEADS = 6, 12
VARIANCE_FLOOR = 1e-12
CACHED_TAPES = 4
"""Tapes whose vectors stay in memory: 1.5 MB for a thousand passages."""
FILE_VERSION = 1
SCHEMA = f"""
CREATE TABLE tape (name TEXT PRIMARY KEY, entry INTEGER NOT NULL, mark TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE passage (tape TEXT NOT NULL, id INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (tape, id)) WITHOUT ROWID;
PRAGMA user_version = {FILE_VERSION};
"""


def read_tensors(file: Path) -> dict[str, Floats]:
    """Read the tensors of a file in the format safetensors: the length of a header, the header as JSON, the numbers."""
    numbers = np.memmap(file, dtype=np.uint8, mode="r")
    size = int.from_bytes(numbers[:8].tobytes(), "little")
    header = json.loads(numbers[8 : 8 + size].tobytes())
    tensors = {}
    for name, tensor in header.items():
        if name != "__metadata__" and tensor["dtype"] == "F32":
            start, end = tensor["data_offsets"]
            part = numbers[8 + size + start : 8 + size + end]
            tensors[name] = part.view(np.float32).reshape(tensor["shape"])
    return tensors


class Encoder:
    """Turns texts into vectors of length 1, whose product is their likeness."""

    def __init__(self, folder: Path) -> None:
        self._tensors = read_tensors(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()

    def encode(self, texts: list[str]) -> Floats:
        """Encode texts, a row for each."""
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([item.ids for item in encoded])
        mask = np.array([item.attention_mask for item in encoded], dtype=np.float32)
        hidden = self._embed(ids)
        ignored = (mask - 1)[:, None, None, :] * np.float32(1e9)
        for number in range(LAYERS):
            hidden = self._layer(hidden, ignored, f"encoder.layer.{number}")
        mean = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        vectors: Floats = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return vectors

    def _embed(self, ids: NDArray[np.int64]) -> Floats:
        words, places, types = (
            self._tensors[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        return self._normalise(words[ids] + places[: ids.shape[1]] + types[0], "embeddings.LayerNorm")

    def _layer(self, hidden: Floats, ignored: Floats, name: str) -> Floats:
        attended = self._linear(
            self._attend(hidden, ignored, f"{name}.attention.self"), f"{name}.attention.output.dense"
        )
        hidden = self._normalise(attended + hidden, f"{name}.attention.output.LayerNorm")
        inner = self._linear(hidden, f"{name}.intermediate.dense")
        # GELU by its usual approximation: the likenesses differ by less than a thousandth.
        inner = (
            np.float32(0.5)
            * inner
            * (1 + np.tanh(np.float32(0.7978845608) * (inner + np.float32(0.044715) * inner**3)))
        )
        return self._normalise(self._linear(inner, f"{name}.output.dense") + hidden, f"{name}.output.LayerNorm")

    def _attend(self, hidden: Floats, ignored: Floats, name: str) -> Floats:
        texts, length, width = hidden.shape
        query, key, value = (
            self._linear(hidden, f"{name}.{part}").reshape(texts, length, HEADS, width // HEADS).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32((width // HEADS) ** 0.5) + ignored
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended: Floats = (weights @ value).transpose(0, 2, 1, 3).reshape(texts, length, width)
        return attended

    def _linear(self, values: Floats, name: str) -> Floats:
        result: Floats = values @ self._tensors[f"{name}.weight"].T + self._tensors[f"{name}.bias"]
        return result

    def _normalise(self, values: Floats, name: str) -> Floats:
        mean, variance = values.mean(axis=-1, keepdims=True), values.var(axis=-1, keepdims=True)
        scale, shift = self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"]
        result: Floats = (values - mean) / np.sqrt(variance + np.float32(VARIANCE_FLOOR)) * scale + shift
        return result


class VectorFile:
    """The vectors of passages, by tape. A missing or damaged file, or one of another version, is replaced by an empty one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._conn: sqlite3.Connection | None = None
        self._inode = 0
        self._cached: OrderedDict[str, tuple[NDArray[np.int64], Floats]] = OrderedDict()

    def open(self) -> sqlite3.Connection:
        """Return the connection to the file; reconnect if the file was deleted."""
        with suppress(OSError):
            if self._conn is not None and self._path.stat().st_ino == self._inode:
                return self._conn
        self.close()
        try:
            self._conn = self._connect()
        except sqlite3.DatabaseError:
            self.delete()
            self._conn = self._connect()
        self._inode = self._path.stat().st_ino
        return self._conn

    def close(self) -> None:
        """Close the file and drop its cache."""
        self._cached.clear()
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def coverage(self, tape: str) -> tuple[int, str]:
        """Return how far the file goes on a tape."""
        row = self.open().execute("SELECT entry, mark FROM tape WHERE name = ?", (tape,)).fetchone()
        return (row[0], row[1]) if row else (0, "")

    def add(self, tape: str, ids: list[int], vectors: Floats, coverage: tuple[int, str]) -> None:
        """Add vectors, a row for each id."""
        conn = self.open()
        rows = [
            (tape, number, vector.astype(np.float16).tobytes()) for number, vector in zip(ids, vectors, strict=True)
        ]
        with conn:
            conn.executemany("INSERT OR REPLACE INTO passage VALUES (?, ?, ?)", rows)
            conn.execute("INSERT OR REPLACE INTO tape VALUES (?, ?, ?)", (tape, *coverage))
        self._cached.pop(tape, None)

    def forget(self, tape: str) -> None:
        """Delete the vectors of a tape."""
        conn = self.open()
        with conn:
            conn.execute("DELETE FROM passage WHERE tape = ?", (tape,))
            conn.execute("DELETE FROM tape WHERE name = ?", (tape,))
        self._cached.pop(tape, None)

    def read(self, tape: str) -> tuple[NDArray[np.int64], Floats]:
        """Read the ids and vectors of a tape, in the order of the ids."""
        conn = self.open()
        found = self._cached.pop(tape, None)
        if found is None:
            rows = conn.execute("SELECT id, vector FROM passage WHERE tape = ? ORDER BY id", (tape,)).fetchall()
            halves = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float16)
            vectors = halves.astype(np.float32).reshape(len(rows), -1) if rows else np.zeros((0, 1), np.float32)
            found = np.array([row[0] for row in rows], dtype=np.int64), vectors
        self._cached[tape] = found
        while len(self._cached) > CACHED_TAPES:
            self._cached.popitem(last=False)
        return found

    def _connect(self) -> sqlite3.Connection:
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        conn = sqlite3.connect(self._path)
        try:
            conn.execute("PRAGMA secure_delete = ON")
            conn.execute("PRAGMA synchronous = NORMAL")
            version = conn.execute("PRAGMA user_version").fetchone()[0]
            tables = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables:
                conn.executescript(SCHEMA)
            elif version != FILE_VERSION:
                raise sqlite3.DatabaseError("another version")
        except BaseException:
            conn.close()
            raise
        return conn

    def delete(self) -> None:
        """Delete the file; the next request begins another."""
        self.close()
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").unlink()


def find_alike(file: VectorFile, tape: str, vector: Floats, before: int, limit: int) -> list[tuple[int, float]]:
    """Find the passages before an entry that are most like a vector, the most like first."""
    ids, vectors = file.read(tape)
    end = int(np.searchsorted(ids, before))
    if not end:
        return []
    likeness = vectors[:end] @ vector
    best = np.argsort(-likeness, kind="stable")[:limit]
    return [(int(ids[place]), round(float(likeness[place]), 4)) for place in best]


def answer(encoder: Encoder, file: VectorFile, request: dict[str, Any]) -> dict[str, object]:
    if "coverage" in request and "add" not in request:
        return {"coverage": file.coverage(request["coverage"])}
    if "add" in request:
        passages = request["passages"]
        ids = [number for number, _ in passages]
        vectors = encoder.encode([text for _, text in passages]) if passages else np.zeros((0, 1), np.float32)
        entry, mark = request["coverage"]
        file.add(request["add"], ids, vectors, (entry, mark))
        return {"done": True}
    if "forget" in request:
        file.forget(request["forget"])
        return {"done": True}
    vector = encoder.encode([request["text"]])[0]
    return {"found": find_alike(file, request["find"], vector, request["before"], request["limit"])}


def answer_or_tell(encoder: Encoder, file: VectorFile, request: dict[str, Any]) -> dict[str, object]:
    """Answer one request, with the error if it fails. Delete a file that is damaged inside, as by a power cut."""
    try:
        return answer(encoder, file, request)
    except (sqlite3.Error, OSError, ValueError, KeyError) as error:
        if type(error) is sqlite3.DatabaseError:  # a full or a busy disk raises one of its subclasses
            file.delete()
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Load the model, then answer requests one after another until stdin closes."""
    output = os.dup(1)
    os.dup2(2, 1)  # what a library prints goes to stderr
    options = json.loads(sys.argv[1])
    os.nice(NICENESS)
    with suppress(ValueError, OSError):  # not every system limits this
        resource.setrlimit(resource.RLIMIT_AS, (options["memory_bytes"], options["memory_bytes"]))
    encoder = Encoder(Path(options["weights"]))
    with open(0, "rb", closefd=False) as stdin, closing(VectorFile(Path(options["file"]))) as file:
        for line in stdin:
            found = answer_or_tell(encoder, file, json.loads(line))
            data = (json.dumps(found) + "\n").encode()
            try:
                while data:
                    data = data[os.write(output, data) :]
            except BrokenPipeError:
                return


if __name__ == "__main__":
    main()
