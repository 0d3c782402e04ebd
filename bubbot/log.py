"""Logs for the operator: stdlib logging on one stream, one line a record, with secrets taken out.

A record's `action` is a short stable name given as `extra={"action": "turn.start"}` (else the name of its logger);
other `extra` values follow as further `key=value` pairs, or as members of the object where the form is JSON. The newest
warnings and errors are remembered for whoever asks how the bot is.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from math import isfinite
from typing import Any, Literal, TextIO

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
"""The levels of `[log] level`."""
REDACTED = "[redacted]"
"""What stands in the place of a secret."""
SHORTEST_SECRET = 6
"""Secrets with fewer characters are not searched for: they would tear ordinary words apart."""

MAX_LOGGED_WARNINGS = 10
"""Warnings and errors that are remembered, the newest of them."""
REMEMBERED_LENGTH = 300
"""Characters of the message of each."""

Form = Literal["auto", "text", "keyvalue", "json"]
"""How a record is written; `auto`: for people on a terminal, else as `key=value` pairs."""

_OURS = ("bubbot", "channels")
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "action", "taskName"}
_SLASHES = r"\\*+"
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_session: ContextVar[str | None] = ContextVar("session", default=None)
_turn: ContextVar[str | None] = ContextVar("turn", default=None)


@dataclass(frozen=True, slots=True)
class LoggedWarning:
    """A warning or an error that was logged: when (ISO 8601 in UTC), and what it said, on one line without secrets."""

    time: str
    level: str
    action: str
    message: str


@dataclass(frozen=True, slots=True)
class LogSummary:
    """How many warnings and errors were logged since `setup`, and the newest of them, oldest first."""

    warnings: int = 0
    errors: int = 0
    newest: tuple[LoggedWarning, ...] = ()


@contextmanager
def bind(*, session: str | None = None, turn: str | None = None) -> Iterator[None]:
    """Adds the ids to every record logged inside the block, and by tasks started there; None keeps what is set."""
    tokens = [(var, var.set(value)) for var, value in ((_session, session), (_turn, turn)) if value is not None]
    try:
        yield
    finally:
        for var, token in reversed(tokens):
            var.reset(token)


def setup(level: str, *, stream: TextIO | None = None, secrets: Sequence[str] = (), form: Form = "auto") -> None:
    """Logs from `level` (a key of `LEVELS`) to `stream`, without the `secrets`.

    No stream stands for stderr, also where that is replaced later: a line editor prints what comes there above itself.
    `auto` looks whether the stream is a terminal now. Libraries are heard from WARNING on.
    A second call replaces the first; handlers of others stay. Raises `KeyError` for an unknown level.
    """
    threshold = LEVELS[level]
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(_StderrHandler(stream, threshold, Redactor(secrets), form))
    root.setLevel(max(threshold, logging.WARNING))
    for name in _OURS:
        logging.getLogger(name).setLevel(threshold)


def renew(level: str, secrets: Sequence[str]) -> None:
    """Another level, and more secrets: what was secret once is not shown later either. What was warned of is kept."""
    if handler := _installed():
        handler.renew(LEVELS[level], Redactor((*handler.redactor.secrets, *secrets)))
        logging.getLogger().setLevel(max(LEVELS[level], logging.WARNING))
        for name in _OURS:
            logging.getLogger(name).setLevel(LEVELS[level])


def is_set_up() -> bool:
    """Whether `setup` was called."""
    return _installed() is not None


def redact(text: str) -> str:
    """The text without the secrets `setup` was told; unchanged before."""
    handler = _installed()
    return handler.redactor(text) if handler else text


def remarks() -> LogSummary:
    """What had to be warned of since `setup`; nothing before."""
    handler = _installed()
    return handler.remarks() if handler else LogSummary()


class Redactor:
    """Replaces secrets in text, also percent-encoded, base64 (alone or inside more data) or JSON-escaped."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.secrets = tuple(dict.fromkeys(secrets))
        wanted = {part for secret in secrets for part in _parts(secret) if len(part) >= SHORTEST_SECRET}
        forms = [
            form for secret in sorted(wanted, key=len, reverse=True) for form in (_spelled(secret), *_base64(secret))
        ]
        self._pattern = re.compile("|".join(forms)) if forms else None

    def __call__(self, text: str) -> str:
        """The text with `REDACTED` in the place of every secret."""
        return self._pattern.sub(REDACTED, text) if self._pattern else text


class _StderrHandler(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO | None, threshold: int, redactor: Redactor, form: Form) -> None:
        super().__init__(stream or sys.stderr)
        self.redactor = redactor
        self._threshold = threshold
        self._follows = stream is None
        self._newest: deque[LoggedWarning] = deque(maxlen=MAX_LOGGED_WARNINGS)
        self._warnings = self._errors = 0
        if form == "auto":
            form = "text" if self.stream.isatty() else "keyvalue"
        self._form = {"text": _PlainFormatter, "keyvalue": _KeyValueFormatter, "json": _JsonFormatter}[form]
        self.setFormatter(self._form(redactor))

    def renew(self, threshold: int, redactor: Redactor) -> None:
        """Goes by these from now on."""
        with self.lock or nullcontext():
            self._threshold, self.redactor = threshold, redactor
            self.setFormatter(self._form(redactor))

    def emit(self, record: logging.LogRecord) -> None:
        if self._follows:
            self.stream = sys.stderr
        if record.levelno >= logging.WARNING:
            self._remember(record)
        super().emit(record)

    def remarks(self) -> LogSummary:
        """What was warned of so far."""
        with self.lock or nullcontext():  # other threads log, too
            return LogSummary(self._warnings, self._errors, tuple(self._newest))

    def _remember(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self._errors += 1
        else:
            self._warnings += 1
        try:
            # Before the lines are put together, which can tear a secret apart, and after it, which can make one.
            told = printable(self.redactor(" ".join(self.redactor(record.getMessage()).split())))
        except Exception:  # noqa: BLE001 - arguments that do not fit: `handleError` is about to say so
            return
        shown = told if len(told) <= REMEMBERED_LENGTH else f"{told[: REMEMBERED_LENGTH - 1]}…"
        action = self.redactor(_action(record))
        self._newest.append(LoggedWarning(_instant(record), record.levelname.lower(), action, shown))

    def filter(self, record: logging.LogRecord) -> bool:
        # Here and not only on loggers: some libraries set the level of their own.
        ours = record.name.split(".", 1)[0] in _OURS
        return record.levelno >= (self._threshold if ours else max(self._threshold, logging.WARNING)) and bool(
            super().filter(record)
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """One line in place of the usual report, which shows the arguments, secrets included."""
        with suppress(OSError, ValueError):
            self.stream.write(f"level=error action=log.failed source={record.filename}:{record.lineno}\n")


class _LogFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redact = redactor

    def _values(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        """Everything after the message: the ids, then what the call gave."""
        for name, value in (("session", _session.get()), ("turn", _turn.get())):
            if value is not None:
                yield name, value
        yield from ((name, value) for name, value in vars(record).items() if name not in _USUAL)

    def _pairs(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        return ((name, str(value)) for name, value in self._values(record))

    def _trace(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
        return "\n".join(filter(None, (trace, record.stack_info)))


class _KeyValueFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        pairs = [
            ("time", _instant(record)),
            ("level", record.levelname.lower()),
            ("action", _action(record)),
            ("message", record.getMessage()),
            *self._pairs(record),
        ]
        if trace := self._trace(record):
            pairs.append(("exception", trace))
        # Before quoting, because quoting can cut a secret apart, and after it, because pairs can meet in one.
        return self._redact(" ".join(f"{key}={_value(self._redact(text))}" for key, text in pairs))


class _PlainFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        pairs = " ".join(f"{key}={_value(self._redact(text))}" for key, text in self._pairs(record))
        head = f"{time} {record.levelname.lower():<7} {_action(record)}: {record.getMessage()}"
        text = "\n".join(filter(None, (" ".join(filter(None, (head, pairs))), self._trace(record))))
        return printable(self._redact(text), keep="\n")


class _JsonFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        head = {"time": _instant(record), "level": record.levelname.lower(), "action": self._redact(_action(record))}
        found: dict[str, Any] = {**head, "message": self._redact(record.getMessage())}
        for name, value in self._values(record):
            key = self._redact(name)
            while key in found or key == "exception":
                key += "_"
            found[key] = self._plain(value)
        if trace := self._trace(record):
            found["exception"] = self._redact(trace)
        line = _object(found)
        # Redacted value by value, so that a line stays JSON. Where a secret shows itself only between two values, or by
        # their escapes, the line itself is no more than a message; and nothing, where even that would show it.
        for message in (self._redact(line), REDACTED):
            if self._redact(line) == line:
                break
            line = _object({**head, "message": message})
        return line

    def _plain(self, value: object) -> Any:
        """A value of JSON without secrets: numbers and the like as they are, everything else as text."""
        text = str(value)
        told = self._redact(text)
        as_it_is = value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value))
        return value if as_it_is and told == text else told


def _object(members: dict[str, Any]) -> str:
    """A JSON object on one line, with escapes for what is not printable."""
    text = json.dumps(members, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _action(record: logging.LogRecord) -> str:
    return str(getattr(record, "action", record.name))


def _installed() -> _StderrHandler | None:
    return next((handler for handler in logging.getLogger().handlers if isinstance(handler, _StderrHandler)), None)


def _value(text: str) -> str:
    """A value that stays one word on one line: in JSON's quotes where it must be."""
    if re.fullmatch(r"[^\s\"=\\]+", text) and text.isprintable():
        return text
    return printable(json.dumps(text, ensure_ascii=False))


def printable(text: str, *, keep: str = "") -> str:
    """The text with escapes for what moves a cursor, reorders or hides text, or cannot be written as UTF-8."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def _parts(secret: str) -> Iterator[str]:
    """A secret, and its lines: tools that show text line by line cut it there."""
    yield secret
    yield from map(str.strip, secret.splitlines())


def _spelled(secret: str) -> str:
    """A pattern for the secret where any of its characters may be percent-encoded or escaped, even twice.

    Escapes double backslashes, so a run of them takes all there are and none is given back: matching stays linear.
    """
    # What comes before the secret may end in backslashes: a match begins with the first of them.
    pattern = r"(?<!\\)" if secret[0] == "\\" else ""
    slashes = ""
    for char, run in groupby(secret):
        count = len(list(run))
        if char == "\\":
            pattern += rf"(?:\\|u005[cC]|%(?:25)*5[cC]){{{count},}}+"
            slashes = ""
        else:
            pattern += _character(char, slashes) + _character(char, _SLASHES) * (count - 1)
            slashes = _SLASHES
    return pattern


def _character(char: str, slashes: str) -> str:
    """A pattern for one character after `slashes`, a pattern for the backslashes of escapes."""
    utf8 = re.findall("..", char.encode(errors="surrogatepass").hex())
    utf16 = re.findall("....", char.encode("utf-16-be", errors="surrogatepass").hex())
    ways = [
        re.escape(char),
        _SLASHES.join(f"u{_hex(unit)}" for unit in utf16),
        _SLASHES.join(f"x{_hex(byte)}" for byte in utf8),
        f"x{ord(char):02x}",
        f"U{ord(char):08x}",
        "".join(f"%(?:25)*{_hex(byte)}" for byte in utf8),
    ]
    if char in _SHORT_ESCAPES:
        ways.append(_SHORT_ESCAPES[char])
    if char == " ":
        ways.append(r"\+")
    return f"{slashes}(?:{'|'.join(ways)})"


def _hex(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _base64(secret: str) -> Iterator[str]:
    """Patterns for the base64 of the secret, at each of the three places it can have in longer data."""
    raw = secret.encode(errors="surrogatepass")
    for before in range(3):
        bits = "".join(f"{byte:08b}" for byte in raw)[-before * 8 % 6 :]
        whole = "".join(_DIGITS[int(bits[i : i + 6], 2)] for i in range(0, len(bits) - 5, 6))
        # A digit shared with the neighbouring data can be any, and goes with the rest.
        yield (_ANY_DIGIT if before else "") + whole + (_ANY_DIGIT if len(bits) % 6 else "") + "={0,2}"


_ANY_DIGIT = r"[\w+/-]?"
_DIGITS = [
    *map(chr, (*range(65, 91), *range(97, 123), *range(48, 58))),
    r"(?:[+-]|%2[bB])",
    r"(?:\\*/|_|%2[fF])",
]
