"""`bubbot ask`: one turn."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bubbot.app.settings import find_attachment_limit
from bubbot.app.tapes import new_id, now
from bubbot.arguments.fields import Args
from bubbot.cli.chat.connection import with_chat
from bubbot.cli.invocation import Invocation, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import AnswerPrinter, format_json, show, show_on_stderr
from bubbot.cli.quarantine import read_quarantine_notice
from bubbot.cli.setup import CommandSetup, load_setup, session_id
from bubbot.errors import ConfigError, OutputFailed
from bubbot.formatting import format_bytes
from bubbot.home import Home
from bubbot.ports.channel import Attachment, AttachmentKind, Inbound, Sender
from bubbot.server.chat import ChatConnection
from bubbot.server.remote import AskResult
from bubbot.shell_command import Argument, CommandGroup, TypedAnswer, json_data
from bubbot.tape.entry import timestamp

STDIN = "-"
SAID_BY_ASK = ("bubbot.gateway.outbound", "bubbot.runtime.session")
"""The loggers whose warnings this command replaces by its own sentences."""
DEFAULT_WAIT_SECONDS = 120.0
MAX_WAIT_SECONDS = 86_400.0
MAX_INPUT_BYTES = 16 * 2**20
"""Bytes of standard input that become the message."""
MAX_NAME_CHARS = 200
"""Characters of a model's name."""
SILENT_DISK_SECONDS, DISK_POLL_SECONDS = 3.0, 15.0
"""Seconds until a person learns that the bot cannot write, and between later checks."""
SILENT_INPUT_SECONDS = 3.0
"""Seconds until a person learns that the command waits for standard input."""


class SentFile(Struct, frozen=True):
    """A file sent with the question."""

    attachment: Attachment
    data: bytes


class AskReport(Struct, frozen=True):
    """A question and its answer.

    Attributes:
        session: the conversation.
        turn: the id of the turn.
        status: how it ended: `answered`, `silent`, `failed` or `stopped`.
        text: the answer.
        entries: the ids of the first and the last entry that the turn wrote; none if it wrote nothing.
    """

    session: str
    turn: str
    status: str
    text: str
    entries: tuple[int, ...]


def parse_wait(text: str) -> float:
    """Parse seconds. Raise `ValueError` with a sentence."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise ValueError(f"{text!r} is not a number of seconds from 0 to {MAX_WAIT_SECONDS:.0f}")
    return seconds


def decoder(subject: str) -> Callable[[str], str]:
    """Make a function that decodes an argument as UTF-8 in every locale. It raises `ConfigError` with the subject."""
    return lambda text: _decode(text.encode("utf-8", "surrogateescape"), subject)


def parse_attachment(text: str) -> Path:
    """Parse the path of a file to send. Raise `UsageError` if it is not one."""
    if not text:
        raise usage_error("bubbot ask", "-a is empty; name a file, or - for standard input")
    if text.lower().startswith(("http://", "https://", "ftp://", "file://")):
        raise usage_error(
            "bubbot ask", f"-a {text} is a URL, and bubbot ask fetches none: download the file, and name its path"
        )
    return Path(text)


class AskArgs(Args, frozen=True):
    """The arguments of `bubbot ask`."""

    text: Annotated[
        str | None,
        Argument("what to say; without it, or with -, standard input is the message", parse=decoder("the message")),
    ] = None
    session: Annotated[str, Argument("the conversation it belongs to (default: default)")] = "default"
    model: Annotated[str | None, Argument("the model for this question alone", "MODEL", decoder("-m"), short="m")] = (
        None
    )
    system: Annotated[str, Argument("instructions for this question alone", "TEXT", decoder("-s"), short="s")] = ""
    attach: Annotated[
        tuple[Path, ...],
        Argument("send a file; repeat it for more, - is stdin", "FILE", parse_attachment, short="a", repeated=True),
    ] = ()
    wait: Annotated[
        float,
        Argument("how long to wait for another command that writes to the home (default: 120)", "SECONDS", parse_wait),
    ] = DEFAULT_WAIT_SECONDS


@local_command(
    "ask", form="[text]", example="journalctl -u nginx -n 50 | bubbot ask 'what went wrong?'", result=AskReport
)
def ask_question(invocation: Invocation, args: AskArgs) -> int:
    """Ask one question and print the answer.

    Ask one question and print the answer. Text that is piped in comes before the question. The exit code is 1 if the turn
    failed; the reason is then on standard error.
    """
    is_stdin_file = Path(STDIN) in args.attach
    if args.attach.count(Path(STDIN)) + (args.text in (None, STDIN)) > 1:
        raise usage_error(
            "bubbot ask", "standard input can be read once only: as the message, or as one file with -a -"
        )
    if args.model is not None and not args.model.strip():
        raise usage_error("bubbot ask", "-m is empty; name a model, such as openai/gpt-4o, or leave -m out")
    if len(args.model or "") > MAX_NAME_CHARS:
        raise usage_error(
            "bubbot ask", f"-m has {len(args.model or '')} characters, and a model's name at most {MAX_NAME_CHARS}"
        )
    text = _read_message(args.text, is_stdin_file=is_stdin_file)
    setup, session = load_setup(invocation), session_id(args.session)
    files = [_read_attachment(str(file), setup) for file in args.attach]
    inbound = build_inbound(session, text, files, (args.model or "").strip(), args.system.strip())
    return _run_turn(setup, inbound, files, as_json=setup.as_json, wait_seconds=args.wait)


def ask(setup: CommandSetup, session: str, text: str) -> int:
    """Run one turn and print its answer; return 1 if it failed, else 0."""
    return _run_turn(setup, build_inbound(session, text), [], as_json=False, wait_seconds=DEFAULT_WAIT_SECONDS)


def _run_turn(
    setup: CommandSetup, inbound: Inbound, files: Sequence[SentFile], *, as_json: bool, wait_seconds: float
) -> int:
    show("", end="", flush=True)  # detect a closed output before the question costs anything
    printer = AnswerPrinter()
    with nullcontext() if setup.settings.log.level == "debug" else _without_warnings():
        status = asyncio.run(_ask(setup, inbound, files, printer, as_json=as_json, wait_seconds=wait_seconds))
    printer.check(inbound.session)
    return 1 if status == "failed" else 0


def _read_message(text: str | None, *, is_stdin_file: bool) -> str:
    """Join the piped and the typed text, in this order. Raise `ConfigError` if there is none or it is not UTF-8."""
    pieces = []
    if text in (None, STDIN) or (_is_piped() and not is_stdin_file):
        pieces.append(_decode(_read_stdin(MAX_INPUT_BYTES), "standard input"))
    if text is not None and text != STDIN:
        pieces.append(text)
    pieces = [piece.rstrip("\r\n") for piece in pieces if piece.strip()]
    if not pieces:
        raise usage_error("bubbot ask", "the message is empty: give a text, such as bubbot ask hello")
    return "\n\n".join(pieces)


def _decode(raw: bytes, subject: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        hint = "; -a - sends it as a file" if subject == "standard input" else ""
        raise ConfigError(f"{subject} is not valid UTF-8 (byte {error.start + 1}); nothing was sent{hint}") from error


def _is_piped() -> bool:
    """Return true if standard input is a pipe, a socket or a file: terminals and the null device have no text for us."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def _read_stdin(limit: int) -> bytes:
    """Read standard input to its end. Raise `ConfigError` if it is larger than `limit` bytes or unreadable."""
    with suppress(OSError, ValueError):
        if not sys.stdin.isatty() and not select.select([sys.stdin], [], [], SILENT_INPUT_SECONDS)[0]:
            show_on_stderr("bubbot: waiting for the end of standard input; < /dev/null asks without it")
    try:
        data = sys.stdin.buffer.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"standard input cannot be read ({error.strerror}); nothing was sent") from error
    if len(data) > limit:
        raise ConfigError(f"standard input is larger than {format_bytes(limit)}; nothing was sent")
    return data


def _read_attachment(name: str, setup: CommandSetup) -> SentFile:
    """Read a file to send. Raise `ConfigError` if it is unreadable or too large."""
    limit = find_attachment_limit(setup.settings)
    data = _read_stdin(limit) if name == STDIN else _read_file(name, limit, setup.home)
    # Imported here: most questions have no files.
    from mimetypes import guess_type

    media_type = guess_type(name)[0] or ""
    main = media_type.partition("/")[0]
    kinds: dict[str, AttachmentKind] = {"image": "image", "audio": "audio", "video": "video"}
    label = "" if name == STDIN else Path(name).name
    return SentFile(Attachment(new_id(), label, media_type, len(data), kinds.get(main, "file")), data)


def _read_file(name: str, limit: int, home: Home) -> bytes:
    path = Path(name).expanduser() if name.startswith("~") else Path(name)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError(f"-a {name} is a folder; name a file")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise ConfigError(f"-a {name} is not a regular file")
        if home.path.resolve() == path.resolve().parent and path.name.startswith(home.database.name):
            raise ConfigError(
                f"-a {name} is the database, which only SQLite may open; `bubbot tape export` makes a file"
            )
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"-a {name} cannot be read ({reason}): check the name and its permissions") from error
    if len(data) > limit:
        raise ConfigError(f"-a {name} is larger than {format_bytes(limit)}, the limit of [attachments] max_bytes")
    return data


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide the log's warnings about a failed turn and an undelivered answer: this command prints its own sentence."""
    levels = {logger: logger.level for logger in map(logging.getLogger, SAID_BY_ASK)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


async def _ask(
    setup: CommandSetup,
    inbound: Inbound,
    files: Sequence[SentFile],
    printer: AnswerPrinter,
    *,
    as_json: bool,
    wait_seconds: float,
) -> str:
    """Run one turn, print its answer, and return its status. The reason of a failed turn goes to standard error."""
    printed: list[AskResult] = []
    session, contents = inbound.session, {file.attachment.reference: file.data for file in files}

    def show_result(result: AskResult, answer: str) -> None:
        if as_json:
            printer(_as_json(session, result), wraps=False)
        elif result.status == "failed":
            show_on_stderr("\n".join(f"bubbot: {line}" for line in answer.splitlines() if line.strip()))
        else:
            printer(answer)
        printed.append(result)

    async def talk(chat: ChatConnection) -> str:
        if notice := await read_quarantine_notice(setup):
            show_on_stderr(notice)
        watching = asyncio.create_task(_report_full_disk(setup.home))
        try:
            result = await chat.ask(inbound, show_result, contents)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if not printed and printer.error is None and (as_json or result.text):
            with suppress(OutputFailed):  # reported at the end
                show_result(result, result.text)
        return result.status

    # Standard output is for the JSON object alone.
    adapter_settings = {"write": show_on_stderr if as_json else printer}
    return await with_chat(setup, session, adapter_settings, talk, hold=True, wait_seconds=wait_seconds)


async def type_command(setup: CommandSetup, session: str, line: str, model: str = "") -> TypedAnswer:
    """Let the bot answer a comma command of the owner. See `TypeCommand`."""
    show("", end="", flush=True)  # detect a closed output before the answer costs anything

    async def talk(chat: ChatConnection) -> AskResult:
        return await chat.ask(build_inbound(session, line, model=model), lambda _result, _answer: None, {})

    settings = {"write": lambda _text: None}
    result = await with_chat(setup, session, settings, talk, hold=True, wait_seconds=DEFAULT_WAIT_SECONDS)
    return TypedAnswer(result.text, result.turn, (result.entries[0], result.entries[-1]) if result.entries else ())


async def _report_full_disk(home: Home) -> None:
    """Report once that the running bot waits for its disk: until it can write, it accepts no message and merges no
    turn.
    """
    await asyncio.sleep(SILENT_DISK_SECONDS)
    from bubbot.ops.doctor.running import request_snapshot

    while (snapshot := await request_snapshot(home)) is None or not snapshot.full:  # noqa: ASYNC110 - it is another process
        await asyncio.sleep(DISK_POLL_SECONDS)
    state = "read-only" if snapshot.readonly else "full"
    show_on_stderr(
        f"bubbot: the disk of {home.path} is {state}; the bot goes on when it can write there, waiting for it"
    )


def build_inbound(
    session: str, text: str, files: Sequence[SentFile] = (), model: str = "", instructions: str = ""
) -> Inbound:
    """Build a message of the owner at the terminal."""
    channel, _, chat = session.partition(":")
    return Inbound(
        channel,
        new_id(),
        chat,
        Sender("0", "owner"),
        text,
        timestamp(now()),
        attachments=tuple(file.attachment for file in files),
        model=model,
        instructions=instructions,
        is_one_shot=True,
    )


def _as_json(session: str, result: AskResult) -> str:
    report = AskReport(session, result.turn, result.status, result.text, result.entries)
    return format_json(json_data(report))


ASK_COMMANDS = CommandGroup("ask", (ask_question,))
