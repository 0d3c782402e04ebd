"""How much of a turn goes out: what was said, who said it, and under which names."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from bubbot.features.otel.people import PeopleRedactor, Person
from bubbot.formatting import clean_json
from bubbot.ports.model import ToolCall
from bubbot.tape.entry import thaw

MAX_TEXT_CHARS = 20_000
"""The longest text of a message, argument or result; the rest is on the tape."""
MAX_LIST_CHARS = 400_000
"""The longest list of messages of one span; older messages are left out."""
UNKNOWN_TOOL = "unknown"
SUB_TASK = "sub-task"


class Exposure(Struct, frozen=True):
    """What a receiver may see.

    Attributes:
        content: see `[otel] content`.
        redact: takes the secrets of the bot out of a text.
        key: makes pseudonyms.
        agent: the name of the bot.
        tools: the names of the tools that exist: in any other name a model may have written something.
        channels: the names of the channels: chats are named by them.
        people: takes people out of the texts of a turn; None: what it knows of no turn.
    """

    content: str
    redact: Callable[[str], str]
    key: bytes
    agent: str = "bubbot"
    tools: Collection[str] = ()
    channels: Collection[str] = ()
    people: PeopleRedactor | None = None

    def of_turn(self, session: str, people: Iterable[Person]) -> Exposure:
        """Return the exposure of a turn, which knows who wrote in it. Only `redacted` needs that."""
        if self.content != "redacted":
            return self
        redactor = PeopleRedactor(self.identify, session=session, people=people, channels=self.channels)
        return structs.replace(self, people=redactor)

    @property
    def has_content(self) -> bool:
        """True if messages, arguments and results go out."""
        return self.content != "off"

    def label(self, text: str) -> str:
        """Return a word of bubbot or of a provider, such as the name of a model, as it goes out."""
        return text if self.content == "full" else self.redact(text)

    def text(self, text: str, limit: int = MAX_TEXT_CHARS) -> str:
        """Return a text that somebody wrote, as it goes out. Called only if there is content."""
        return _cut(self._hide_people(self.label(text)), limit)

    def value(self, value: object, *, numbers: bool = True) -> object:
        """Return a value of JSON without people; its secrets go when it is encoded. `numbers`: those may be ids."""
        return self._redactor.redact_json(value, numbers=numbers) if self.content == "redacted" else value

    def _hide_people(self, text: str) -> str:
        return self._redactor(text) if self.content == "redacted" else text

    @property
    def _redactor(self) -> PeopleRedactor:
        return self.people or PeopleRedactor(self.identify, channels=self.channels)

    def error(self, text: str) -> str:
        """Return an error as it goes out, empty without content: a provider may quote what it was sent."""
        return self.text(text) if self.has_content else ""

    def identify(self, what: str, name: str) -> str:
        """Return the id of a chat or person: a pseudonym, the same each time, unless everything goes out."""
        if self.content == "full":
            return name
        return self.fingerprint(f"{what}:{name}")[:16]

    def fingerprint(self, text: str) -> str:
        """Return a hash of a text that only who has the key can make."""
        return hmac.digest(self.key, text.encode(), "sha256").hex()[:32]

    def tool(self, name: str) -> str:
        """Return the name of a tool."""
        if name in self.tools:
            return self.label(name)
        return self.text(name) if self.has_content else UNKNOWN_TOOL

    def sub_agent(self, name: str) -> str:
        """Return the name of a sub-task, which a model may have chosen."""
        return self.text(name) if name and self.has_content else SUB_TASK

    def write_json(self, value: object) -> str:
        """Encode a value, without secrets that only its JSON shows."""
        return self.label(json.dumps(value, ensure_ascii=False))

    def message(self, role: str, content: object) -> dict[str, Any]:
        """Build a message; its content is text, or a list of parts."""
        return {"role": role, "parts": self._parts(content)}

    def _parts(self, content: object) -> list[dict[str, Any]]:
        if isinstance(content, str):
            return [{"type": "text", "content": self.text(content)}] if content.strip() else []
        parts: list[dict[str, Any]] = []
        for part in content if isinstance(content, Sequence) else ():
            if not isinstance(part, Mapping):
                continue
            if part.get("type") == "text":
                parts += self._parts(str(part.get("text", "")))
            elif self.content == "full":  # an attachment: its name, kind and size; never its bytes
                parts.append({**thaw(part), "type": str(part.get("type", "file"))})
            else:
                parts.append({"type": self.label(str(part.get("type", "file")))})
        return parts

    def call_part(self, call: ToolCall) -> dict[str, Any]:
        """Build the part of a message that calls a tool."""
        return {
            "type": "tool_call",
            "id": self.label(call.id),
            "name": self.tool(call.name),
            "arguments": self.arguments(call),
        }

    def arguments(self, call: ToolCall) -> object:
        """Return the arguments of a call, as an object if they are one and not too long."""
        shown = _cut(self.label(call.arguments), MAX_TEXT_CHARS)
        try:
            return self.value(clean_json(json.loads(shown)))
        except (ValueError, RecursionError):
            return self._hide_people(shown)

    def result_message(self, call: str, text: str) -> dict[str, Any]:
        """Build the message with the result of a call."""
        part = {"type": "tool_call_response", "id": self.label(call), "response": self.text(text)}
        return {"role": "tool", "parts": [part]}

    def write_messages(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Encode messages; the oldest of a list that is too long are left out, and a message says so."""
        return self.join_messages(map(self.write_json, reversed(messages)), len(messages))

    def join_messages(self, newest_first: Iterable[str], count: int, limit: int = MAX_LIST_CHARS) -> str:
        """Make a list of so many encoded messages, of which no more are read than the limit has room for."""
        texts: list[str] = []
        size = 0
        for text in newest_first:
            size += len(text)
            if size > limit:
                note = {"type": "text", "content": f"[{count - len(texts)} older messages left out]"}
                texts.append(json.dumps({"role": "system", "parts": [note]}))
                break
            texts.append(text)
        return self.label(f"[{', '.join(reversed(texts))}]")


def _cut(text: str, limit: int) -> str:
    rest = len(text) - limit
    return text if rest <= 0 else f"{text[:limit]}… [{rest} more characters]"
