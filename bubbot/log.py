"""Logs for the operator: stdlib logging on one stream, one line per record, without secrets.

A record's `action` is a short stable name given as `extra={"action": "turn.start"}` (else the name of its logger);
other `extra` values follow as further `key=value` pairs, or as members of the object in the JSON form. Health reports show the
newest warnings and errors.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from itertools import groupby
from math import isfinite
from typing import Any, Literal, TextIO

from msgspec import Struct

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
"""The levels of `[log] level`."""
REDACTED = "[redacted]"
"""The replacement of a secret."""
MIN_SECRET_CHARS = 6
"""Shorter secrets are not searched for: they would cut ordinary words apart."""

MAX_LOGGED_WARNINGS = 10
"""The number of newest warnings and errors that are remembered."""
MAX_WARNING_CHARS = 300
"""The characters that are remembered of each message."""

LogForm = Literal["auto", "text", "keyvalue", "json"]
"""The form of a record; `auto`: for people on a terminal, else `key=value` pairs."""

_OWN_LOGGERS = ("bubbot", "channels")
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "action", "taskName"}
_ONE_WORD = re.compile(r"[^\s\"=\\]+")
_SLASHES = r"\\*+"
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_session: ContextVar[str | None] = ContextVar("session", default=None)
_turn: ContextVar[str | None] = ContextVar("turn", default=None)


class LoggedWarning(Struct, frozen=True, forbid_unknown_fields=True):
    """A logged warning or error: its time (ISO 8601 in UTC), and its message on one line without secrets."""

    time: str
    level: str
    action: str
    message: str


class LogSummary(Struct, frozen=True):
    """The number of warnings and errors logged since `setup`, and the newest of them, oldest first."""

    warnings: int = 0
    errors: int = 0
    newest: tuple[LoggedWarning, ...] = ()


class bind:  # noqa: N801 - a context manager reads like a function, and a generator would cost each turn three times as much
    """Add ids to every record logged inside the block and by tasks started there; None keeps the outer id."""

    __slots__ = ("_tokens", "_values")

    def __init__(self, *, session: str | None = None, turn: str | None = None) -> None:
        self._values = ((_session, session), (_turn, turn))

    def __enter__(self) -> None:
        self._tokens = [(var, var.set(value)) for var, value in self._values if value is not None]

    def __exit__(self, *_: object) -> None:
        for var, token in reversed(self._tokens):
            var.reset(token)


def setup(
    level: str,
    *,
    stream: TextIO | None = None,
    secrets: Sequence[str] = (),
    form: LogForm = "auto",
    zone: tzinfo | None = None,
    sentences: bool = False,
) -> None:
    """Log from `level` on to `stream`, without the secrets.

    Libraries log from WARNING on. A second call replaces the first; other handlers stay.

    Args:
        level: a key of `LEVELS`; another one raises `KeyError`.
        stream: None for stderr, even if that is replaced later: a line editor prints output of stderr above itself.
        form: `auto` depends on whether the stream is a terminal now.
        zone: the time zone of the readable form; None for the machine's.
        sentences: on a terminal, `auto` prints a sentence per record, without time and action: for short commands.
    """
    threshold = LEVELS[level]
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(StderrHandler(stream, threshold, Redactor(secrets), form, zone, sentences=sentences))
    root.setLevel(max(threshold, logging.WARNING))
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(threshold)
    warnings.showwarning = _log_warning  # otherwise Python prints the file and a line of its source


def _log_warning(message: Warning | str, category: type[Warning], *_args: object, **_options: object) -> None:
    """Log a warning of Python or a library: its text and class, without the place in the source."""
    text = " ".join(str(message).split())
    logging.getLogger("warnings").warning("%s (%s)", text, category.__name__, extra={"action": "python.warning"})


def reconfigure(level: str, secrets: Sequence[str]) -> None:
    """Set another level, and add secrets: an old secret stays redacted. The remembered warnings stay."""
    if handler := _installed():
        handler.reconfigure(LEVELS[level], Redactor((*handler.redactor.secrets, *secrets)))
        logging.getLogger().setLevel(max(LEVELS[level], logging.WARNING))
        for name in _OWN_LOGGERS:
            logging.getLogger(name).setLevel(LEVELS[level])


def hide(secrets: Sequence[str]) -> None:
    """Hide these secrets as well from now on; before `setup`, do nothing."""
    if (handler := _installed()) is not None and not {*secrets} <= {*handler.redactor.secrets}:
        handler.hide(secrets)


def is_configured() -> bool:
    return _installed() is not None


def redact(text: str) -> str:
    """Return the text without the secrets given to `setup`; before `setup`, return it unchanged."""
    handler = _installed()
    return handler.redactor(text) if handler else text


def recent_warnings() -> LogSummary:
    """Return the warnings since `setup`; before `setup`, none."""
    handler = _installed()
    return handler.recent_warnings() if handler else LogSummary()


class Redactor:
    """Replacement of secrets in text, also percent-encoded, base64 (alone or inside more data) or JSON-escaped."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.secrets = tuple(dict.fromkeys(secrets))
        parts = {part for secret in secrets for part in _parts(secret) if len(part) >= MIN_SECRET_CHARS}
        self._parts = sorted(parts, key=len, reverse=True)
        # A character that is written as another one, such as a line's end as `n`, is not looked for in plain text.
        self._is_plain = all(part.isprintable() and "\\" not in part for part in parts)

    def __call__(self, text: str) -> str:
        """Return the text with `REDACTED` instead of every secret."""
        if not self._parts:
            return text
        if self._is_plain and not _ESCAPE.search(text):
            return self._plain_pattern.sub(REDACTED, text)
        return self._pattern.sub(REDACTED, text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Every spelling. Compiling it takes 4 ms for each secret, and most commands log nothing that needs it."""
        return _any_of(form for part in self._parts for form in (_spelling_pattern(part), *_base64_patterns(part)))

    @cached_property
    def _plain_pattern(self) -> re.Pattern[str]:
        """What `_pattern` finds in a text in which nothing is escaped."""
        return _any_of(form for part in self._parts for form in (_plain_form(part), *_base64_patterns(part)))


def _any_of(forms: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(forms))


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes what the program reports; `setup` installs one."""

    def __init__(
        self,
        stream: TextIO | None,
        threshold: int,
        redactor: Redactor,
        form: LogForm,
        zone: tzinfo | None,
        *,
        sentences: bool,
    ) -> None:
        super().__init__(stream or sys.stderr)
        self.redactor = redactor
        self._threshold = threshold
        self._follows_stderr = stream is None
        self._newest: deque[LoggedWarning] = deque(maxlen=MAX_LOGGED_WARNINGS)
        self._warnings = self._errors = 0
        if form == "auto":
            form = "text" if self.stream.isatty() else "keyvalue"
        else:
            sentences = False
        forms = {"text": _PlainFormatter, "keyvalue": _KeyValueFormatter, "json": _JsonFormatter}
        self._form = _SentenceFormatter if sentences and form == "text" else forms[form]
        self._zone = zone
        self.setFormatter(self._form(redactor, zone))

    def reconfigure(self, threshold: int, redactor: Redactor) -> None:
        """Replace threshold and redactor."""
        with self.lock or nullcontext():
            self._threshold, self.redactor = threshold, redactor
            self.setFormatter(self._form(redactor, self._zone))

    def hide(self, secrets: Sequence[str]) -> None:
        """Hide further secrets."""
        self.reconfigure(self._threshold, Redactor((*self.redactor.secrets, *secrets)))

    def emit(self, record: logging.LogRecord) -> None:
        if self._follows_stderr:
            self.stream = sys.stderr
        if record.levelno >= logging.WARNING:
            self._remember(record)
        super().emit(record)

    def recent_warnings(self) -> LogSummary:
        with self.lock or nullcontext():  # other threads log, too
            return LogSummary(self._warnings, self._errors, tuple(self._newest))

    def _remember(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self._errors += 1
        else:
            self._warnings += 1
        try:
            # Before the lines are joined, which can cut a secret apart, and after it, which can form one.
            message = printable(self.redactor(" ".join(self.redactor(record.getMessage()).split())))
        except Exception:  # noqa: BLE001 - arguments that do not fit: `handleError` is about to report it
            return
        short = message if len(message) <= MAX_WARNING_CHARS else f"{message[: MAX_WARNING_CHARS - 1]}…"
        action = self.redactor(_action(record))
        self._newest.append(LoggedWarning(_instant(record), record.levelname.lower(), action, short))

    def filter(self, record: logging.LogRecord) -> bool:
        # Here and not only on loggers: some libraries set their own level.
        ours = record.name.split(".", 1)[0] in _OWN_LOGGERS
        return record.levelno >= (self._threshold if ours else max(self._threshold, logging.WARNING)) and bool(
            super().filter(record)
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Write one line instead of the usual report, which shows the arguments, secrets included."""
        with suppress(OSError, ValueError):
            self.stream.write(f"level=error action=log.failed source={record.filename}:{record.lineno}\n")


class _LogFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor, zone: tzinfo | None) -> None:
        super().__init__()
        self._redact = redactor
        self._zone = zone

    def _values(self, record: logging.LogRecord) -> list[tuple[str, Any]]:
        """Return everything after the message: the ids, then the extra values of the call."""
        ids = ("session", _session.get()), ("turn", _turn.get())
        return [
            *[(name, value) for name, value in ids if value is not None],
            *[(name, value) for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES],
        ]

    def _pairs(self, record: logging.LogRecord) -> list[tuple[str, str]]:
        return [(name, str(value)) for name, value in self._values(record)]

    def _redact_all(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Redact each value; where they hold no secret, as nearly always, one search tells so."""
        text = "\n".join([value for _, value in pairs])
        return pairs if self._redact(text) == text else [(name, self._redact(value)) for name, value in pairs]

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
        # Before quoting, because quoting can cut a secret apart, and after it, because neighbouring pairs can form one.
        return self._redact(" ".join([f"{key}={_quote(text)}" for key, text in self._redact_all(pairs)]))


class _PlainFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone(self._zone).strftime("%Y-%m-%d %H:%M:%S %Z")
        pairs = " ".join([f"{key}={_quote(text)}" for key, text in self._redact_all(self._pairs(record))])
        head = f"{time} {record.levelname.lower():<7} {_action(record)}: {record.getMessage()}"
        text = "\n".join(filter(None, (" ".join(filter(None, (head, pairs))), self._trace(record))))
        return printable(self._redact(text), keep="\n")


class _SentenceFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        pairs = ", ".join([f"{key} {_quote(text)}" for key, text in self._redact_all(self._pairs(record))])
        message = record.getMessage()
        sentence = f"{record.levelname.capitalize()}: {message}" + (f" ({pairs})" if pairs else "")
        text = "\n".join(filter(None, (sentence, self._trace(record))))
        return printable(self._redact(text), keep="\n")


class _JsonFormatter(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        head = {"time": _instant(record), "level": record.levelname.lower(), "action": self._redact(_action(record))}
        members: dict[str, Any] = {**head, "message": self._redact(record.getMessage())}
        for name, value in self._values(record):
            key = self._redact(name)
            while key in members or key == "exception":
                key += "_"
            members[key] = self._redact_value(value)
        if trace := self._trace(record):
            members["exception"] = self._redact(trace)
        line = _dump_object(members)
        # Redacted value by value, so that a line stays JSON. If a secret shows only across two values, or by their
        # escapes, the line keeps only a redacted message; and none of it, if even that would show the secret.
        for message in (self._redact(line), REDACTED):
            if self._redact(line) == line:
                break
            line = _dump_object({**head, "message": message})
        return line

    def _redact_value(self, value: object) -> Any:
        """Return a JSON value without secrets: numbers and the like unchanged, everything else as text."""
        text = str(value)
        redacted = self._redact(text)
        is_scalar = value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value))
        return value if is_scalar and redacted == text else redacted


def _dump_object(members: dict[str, Any]) -> str:
    """Return a JSON object on one line, with escapes for what is not printable."""
    text = json.dumps(members, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _action(record: logging.LogRecord) -> str:
    return str(getattr(record, "action", record.name))


def _installed() -> StderrHandler | None:
    return next((handler for handler in logging.getLogger().handlers if isinstance(handler, StderrHandler)), None)


def _quote(text: str) -> str:
    """Return a value that stays one word on one line: in JSON quotes if necessary."""
    if text.isalnum() or (_ONE_WORD.fullmatch(text) and text.isprintable()):
        return text
    return printable(json.dumps(text, ensure_ascii=False))


def printable(text: str, *, keep: str = "") -> str:
    """Escape characters that move a cursor, reorder or hide text, or cannot be written as UTF-8."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def _parts(secret: str) -> Iterator[str]:
    """Yield a secret, and its lines: tools that show text line by line cut it there."""
    yield secret
    yield from map(str.strip, secret.splitlines())


_ESCAPE = re.compile(r"[\\%]|[ux][\da-fA-F]{2}|U0")
"""What an escape begins with; its backslashes may be lost."""


def _plain_form(secret: str) -> str:
    return re.escape(secret).replace("\\ ", "[ +]")


def _spelling_pattern(secret: str) -> str:
    """Return a pattern for the secret in which any character may be percent-encoded or escaped, even twice.

    Escapes double backslashes, so a run of them matches without a way back: matching stays linear.
    """
    # The text before the secret may end in backslashes: a match begins with the first of them.
    pattern = r"(?<!\\)" if secret[0] == "\\" else ""
    slashes = ""
    for char, run in groupby(secret):
        count = len(list(run))
        if char == "\\":
            # An atomic group: Python before 3.11.5 lets a possessive one fail where it need not.
            pattern += rf"(?>(?:\\|u005[cC]|%(?:25)*5[cC]){{{count},}})"
            slashes = ""
        else:
            pattern += _character_pattern(char, slashes) + _character_pattern(char, _SLASHES) * (count - 1)
            slashes = _SLASHES
    return pattern


def _character_pattern(char: str, slashes: str) -> str:
    """Return a pattern for one character after `slashes`, a pattern for the backslashes of escapes."""
    utf8 = re.findall("..", char.encode(errors="surrogatepass").hex())
    if char.isascii():  # one number in all of them, which is compiled in half the time of a list of them
        ways = [re.escape(char), f"(?:u00|x|U000000|%(?:25)*){_hex(utf8[0])}"]
    else:
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


def _base64_patterns(secret: str) -> Iterator[str]:
    """Yield patterns for the base64 of the secret, at each of the three offsets that it can have in longer data."""
    raw = secret.encode(errors="surrogatepass")
    for before in range(3):
        bits = "".join(f"{byte:08b}" for byte in raw)[-before * 8 % 6 :]
        digits = "".join(_DIGITS[int(bits[i : i + 6], 2)] for i in range(0, len(bits) - 5, 6))
        # A digit shared with the neighbouring data can be any, and is redacted too.
        yield (_ANY_DIGIT if before else "") + digits + (_ANY_DIGIT if len(bits) % 6 else "") + "={0,2}"


_ANY_DIGIT = r"[\w+/-]?"
_DIGITS = [
    *map(chr, (*range(65, 91), *range(97, 123), *range(48, 58))),
    r"(?:[+-]|%2[bB])",
    r"(?:\\*/|_|%2[fF])",
]
