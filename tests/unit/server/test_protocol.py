"""What goes over the control socket: every value and every error comes back as it was, and nothing else comes in."""

from __future__ import annotations

import inspect
import json
from math import inf
from pathlib import Path
from types import UnionType
from typing import Any, get_origin, get_type_hints

import pytest

from bubbot import errors
from bubbot.errors import BubbotError, ConfigError, ControlError, DeliveryFailed
from bubbot.ports.channel import (
    Attachment,
    BotAdded,
    Button,
    ButtonPress,
    ButtonSet,
    ChannelEvent,
    ChatMigration,
    CommandInfo,
    Deletion,
    Edit,
    ForeignWordsShown,
    Inbound,
    MessagePart,
    OutboundFile,
    PressedButton,
    Preview,
    Quote,
    Reaction,
    Role,
    Sender,
    StepFinished,
    StopRequest,
    TextDiscarded,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    UnparsedUpdate,
)
from bubbot.server.protocol import decode, decode_error, encode, encode_error, encode_message, parse_message

ADA = Sender("1", "Ada \ud800", bot=True)
FILE = Attachment("ref", "a.txt", "text/plain", 12, "voice", "note")
VALUES: list[Any] = [
    Inbound("stdin", "1-1", "default", ADA, "h\u00e9 \0 \U0001f41d", "2026-11-21T20:21:00Z", attachments=(FILE,), quote=Quote("7", ADA, "q", (FILE,))),
    Inbound("stdin", "1-2", "default", ADA, "", "2026-11-21T20:21:00Z"),
    Edit("stdin", "e", "c", "7", ADA, "new", "t"),
    Deletion("stdin", "d", "c", "7", "t"),
    Reaction("stdin", "r", "c", "7", ADA, ("\U0001f44d",), "t"),
    BotAdded("stdin", "b", "c", Sender("1", "Ann"), "t"),
    Inbound("stdin", "1-3", "default", ADA, ",x", "t", press=PressedButton("i", "k", "7", "Yes", "v")),
    ButtonPress("stdin", "b", "c", "7", ADA, "k/0", "t"),
    ChatMigration("stdin", "m", "c", "d", "t"),
    UnparsedUpdate("stdin", "u", "c", bytes(range(256)), "why"),
    StopRequest("stdin", "c", "thread"),
    TurnStarted(),
    ForeignWordsShown(),
    TextStreamed("x"),
    TextDiscarded(),
    ToolStarted("a", "b"),
    ToolFinished("a", True, 3, False),
    StepFinished(1, 2),
    TurnFinished("answered"),
    CommandInfo("help", "says", ("a", "b")),
    MessagePart("c", "text", "t", "r", {"a": [{"b": None}]}, OutboundFile("n", text="x")),
    MessagePart("c", "text", buttons=ButtonSet((Button("a", ",b", "v"),), "1", Role.OWNER, 5, "k"), edits="7"),
]  # fmt: skip
VALUE_TYPES = list(dict.fromkeys(type(value) for value in VALUES))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    found = parse_message(encode_message({"value": encode(value)}))
    assert decode(found["value"], *VALUE_TYPES) == value


def test_every_event_and_every_preview_can_be_carried() -> None:
    assert {*ChannelEvent.__args__, *Preview.__args__} <= set(VALUE_TYPES)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "none of"),
        ({"is": "Path"}, "'Path' is none of"),
        ({"is": "StopRequest", "channel": "a"}, "StopRequest .*required field `chat`.*: restart the bot"),
        ({"is": "StopRequest", "channel": "a", "chat": "b", "odd": 1}, "StopRequest .*unknown field `odd`"),
        ({"is": "StopRequest", "channel": "a", "chat": 7}, r"StopRequest .*`\$\.chat`"),
        ({"is": "StopRequest", "channel": "a", "chat": None}, r"StopRequest .*`\$\.chat`"),
        (
            {"is": "UnparsedUpdate", "channel": "a", "external_id": "", "chat": "", "raw": "*", "reason": ""},
            "UnparsedUpdate .*base64",
        ),
        ({**encode(VALUES[0]), "sender": []}, r"Inbound .*`\$\.sender`"),
        ({**encode(VALUES[0]), "direct": 1}, r"Inbound .*`\$\.direct`"),
        ({**encode(VALUES[0]), "attachments": [{"reference": "x", "kind": "odd"}]}, r"attachments\[0\].kind"),
    ],
)
def test_what_nobody_would_send_is_refused(data: object, told: str) -> None:
    with pytest.raises(ControlError, match=told):
        decode(data, *ChannelEvent.__args__)


@pytest.mark.parametrize(
    "kind", [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BubbotError)]
)
def test_an_error_keeps_its_class(kind: type[BubbotError]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "what\nand why")  # some classes write their text themselves
    found = decode_error(encode_error(error))
    assert (type(found), str(found)) == (kind, "what\nand why")


def test_an_error_keeps_what_it_carries_and_an_unknown_one_its_text() -> None:
    found = decode_error(encode_error(DeliveryFailed("no", permanent=True, retry_after=2.5)))
    assert isinstance(found, DeliveryFailed)
    assert (found.permanent, found.retry_after) == (True, 2.5)
    assert (type(decode_error({"kind": "newer", "text": "x"})), type(decode_error(7))) == (BubbotError, ControlError)


KINDS = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BubbotError)]
ODD: list[object] = [
    None,
    True,
    False,
    -1,
    0.5,
    2**2000,
    float("nan"),
    float("inf"),
    "soon",
    "\ud800",
    [],
    {},
    {"a": [1]},
]


def promised(kind: type[BubbotError]) -> dict[str, Any]:
    """The attributes that an instance of the class has when it is made by its own constructor, with their types."""
    if kind.__init__ is BubbotError.__init__:
        return {}
    wanted = {
        name: 1 if name in ("steps", "count", "seconds", "size", "limit") else "x"
        for name, one in inspect.signature(kind).parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }
    hints = get_type_hints(kind)
    return {name: hints[name] for name in vars(kind(**wanted))}


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_has_every_attribute_of_its_class_whatever_is_missing_or_odd(kind: type[BubbotError]) -> None:
    names = promised(kind)
    for data in (
        {"kind": kind.kind},
        *({"kind": kind.kind, **dict.fromkeys([*names, "text"], value)} for value in ODD),
    ):
        found = decode_error(data)
        assert isinstance(found, kind)
        str(found).encode()
        for name, hint in names.items():
            held = getattr(found, name)
            assert isinstance(held, hint if isinstance(hint, UnionType) else hint_class(hint)), (name, held)
            assert not isinstance(held, float) or 0 <= held < inf


def hint_class(hint: Any) -> Any:
    """What `isinstance` takes for a type."""
    return get_origin(hint) or (float | int if hint is float else hint)


def test_an_error_carries_all_that_it_says() -> None:
    for error in (
        DeliveryFailed("no", permanent=True, retry_after=3, maybe=True, gone=True),
        errors.RateLimitExceeded(scope="user", name="Ann", count=3, span="hour", renews="soon", told=True),
        errors.ValueInvalid("job_none", name="x", count=7),
        errors.TurnTimeout(2.5),
    ):
        found = decode_error(json.loads(json.dumps(encode_error(error))))
        assert {name: value for name, value in vars(found).items() if name in vars(error)} == vars(error)


def test_a_value_that_json_cannot_hold_is_carried_as_text() -> None:
    refused = errors.ValueInvalid("job_none", when=Path("x"))
    found = decode_error(json.loads(json.dumps(encode_error(refused))))
    assert isinstance(found, errors.ValueInvalid)
    assert found.values == {"when": "x"}


def test_a_huge_message_does_not_go_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"text": '"\\\u00e9' * 700_000}
    assert parse_message(encode_message(long)) == long
    monkeypatch.setattr("bubbot.server.protocol.MESSAGE_LIMIT", 2**21)
    with pytest.raises(ConfigError, match="at most 2: stop the bot first"):
        encode_message({"text": "x" * 2**21})


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("\xff", "not JSON"),
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("7", "not a JSON object"),
        ("[" * 200_000, "not JSON"),
    ],
)
def test_garbage_is_an_error(raw: str, told: str) -> None:
    with pytest.raises(ControlError, match=told):
        parse_message(raw)
    with pytest.raises(ControlError):
        parse_message(raw.encode("latin-1"))
