"""Standard input as a channel, from a terminal or a pipe: each line is a message, answers are printed.

A daemon thread reads the lines from a file object of its own: at its end Python takes the lock of `sys.stdin.buffer`,
which a thread that waits for a line holds, and aborts.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from bubbot.errors import DeliveryFailed, OutputFailed
from bubbot.ports.channel import (
    ChannelOptions,
    Inbound,
    MessagePart,
    Outbound,
    Receipt,
    Receive,
    Sender,
    UnparsedUpdate,
    replace_controls,
)
from channels.platform.saved_files import make_parts, save_file

STDIN_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of one line; a longer one is reported as unparsed, with its first `MAX_KEPT_BYTES`."""
MAX_KEPT_BYTES = 64 * 1024
PROMPT = "> "
STDIN_OWNER = Sender("0", "owner")
"""Anyone who can type here can also read the database."""


class StdinChannel:
    """A chat over standard input and output. See `Channel`.

    Settings: `chat` names the conversation; `write` is called with each answer instead of printing it.
    """

    def __init__(self, options: ChannelOptions) -> None:
        self.name = options.name
        self._options = options
        self._chat = str(options.settings.get("chat") or "default")
        self._write: Callable[[str], None] = options.settings.get("write") or self._print
        self._now = options.now
        self._process = options.new_id()
        self._is_ending = False
        self._is_terminal = sys.stdout is not None and sys.stdin.isatty() and sys.stdout.isatty()
        self._is_reading = False

    async def run(self, receive: Receive) -> None:
        """Read lines to the end of the input, or to `,quit`."""
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        room = threading.Semaphore(8)
        loop = asyncio.get_running_loop()

        def put(line: bytes | None) -> None:
            room.acquire()  # read a pipe no faster than its lines are accepted
            loop.call_soon_threadsafe(lines.put_nowait, line)

        threading.Thread(target=_read_lines, args=(sys.stdin.fileno(), put), daemon=True).start()
        self._is_reading = True
        self._prompt()
        number = 0
        while (raw := await lines.get()) is not None:
            room.release()
            number += 1
            self._is_ending = raw.strip() == b",quit"
            if raw.strip():
                await receive(self._event(raw, number))
            else:
                self._prompt()
            if self._is_ending:
                return

    def _event(self, raw: bytes, number: int) -> Inbound | UnparsedUpdate:
        external_id = f"{self._process}-{number}"
        if len(raw) > STDIN_LINE_BYTES:
            reason = f"line {number} is longer than {STDIN_LINE_BYTES // 1024 // 1024} MiB; its beginning is kept"
            return UnparsedUpdate(self.name, external_id, self._chat, raw[:MAX_KEPT_BYTES], reason)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            reason = f"line {number} is not valid UTF-8 (byte {error.start + 1})"
            return UnparsedUpdate(self.name, external_id, self._chat, raw, reason)
        return Inbound(self.name, external_id, self._chat, STDIN_OWNER, text.rstrip("\r\n"), self._now())

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Make one part for the text, of any length, and one for each file, which `send` saves."""
        return make_parts(outbound)

    async def send(self, part: MessagePart) -> Receipt:
        """Print the part; for a file, the path where it was saved."""
        text = await save_file(self._options, part.file) if part.file else part.text
        try:
            await asyncio.to_thread(self._write, text)
        except (OSError, ValueError, OutputFailed) as error:
            reason = error.reason if isinstance(error, OutputFailed) else error
            if self._is_terminal:
                raise DeliveryFailed(f"the terminal is gone ({reason}); the answer waits for the next chat") from error
            # The next script that talks in this chat did not ask for it.
            raise DeliveryFailed(f"standard output is gone ({reason})", permanent=True) from error
        self._prompt()
        return Receipt()

    def _print(self, text: str) -> None:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        # Output of a pipe reaches a terminal sooner or later, and a terminal obeys control characters.
        sys.stdout.buffer.write(f"{replace_controls(text)}\n".encode(errors="replace"))
        sys.stdout.buffer.flush()

    def _prompt(self) -> None:
        if self._is_terminal and self._is_reading and not self._is_ending:
            sys.stdout.write(PROMPT)
            sys.stdout.flush()


def _read_lines(fd: int, put: Callable[[bytes | None], None]) -> None:
    """Put each line, then None at the end. A line over the limit is put once, longer than the limit."""
    with suppress(RuntimeError):  # the event loop is gone
        with suppress(OSError):  # the terminal hung up
            _put_lines(fd, put)
        put(None)


def _put_lines(fd: int, put: Callable[[bytes | None], None]) -> None:
    with open(fd, "rb", closefd=False) as lines:
        while line := lines.readline(STDIN_LINE_BYTES + 1):
            put(line)
            while len(line) > STDIN_LINE_BYTES and not line.endswith(b"\n"):
                line = lines.readline(STDIN_LINE_BYTES + 1)


def create(options: ChannelOptions) -> StdinChannel:
    return StdinChannel(options)
