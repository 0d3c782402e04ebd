"""The card: what people read before they answer. It is built from the facts, so that it is the same at each time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo

from bubbot.ports.channel import Button, ButtonSet, Outbound, OutboundFile, Role, Sender
from bubbot.ports.text import replace_controls
from bubbot.records import dataclass
from bubbot.runtime.context.quoting import clean_name
from bubbot.tape.entry import JsonObject
from bubbot.texts import COMMAND_PREFIX, Texts

MAX_DETAILS_CHARS = 1_200
"""Characters of details, as they are shown, in the card itself, in all; more go into a file, whole: no platform then cuts a card."""
MAX_DETAILS_LINES = 40
MAX_NAMED = 5
"""Things that a yes for longer than once would cover; beyond, each such call needs a yes of its own."""
MAX_VALUE_CHARS = 200
"""Characters of what a grant would cover; it stands in the details, too, whole."""
HOUR_SECONDS = 3600
_MARKS = r"([\\`*_\[\]<>~|#!@&])"
"""Characters that begin something in Markdown, or mention somebody."""
_BACKTICKS = "`+"
_INVISIBLE = (
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True, slots=True)
class CardChat:
    """A chat as the id of its session names it."""

    channel: str
    chat: str
    thread: str = ""


def find_chat(session: str) -> CardChat:
    """Return the chat of a session."""
    channel, _, place = session.partition(":")
    chat, _, thread = place.partition(":")
    return CardChat(channel, chat, thread)


@dataclass(frozen=True, slots=True)
class ApprovalCard:
    """A card.

    Attributes:
        id: what people type.
        asked: the data of `approval.asked`.
        session: the chat in which it came up.
        asker: the person for whom the turn ran.
        texts: the bot's own sentences.
        zone: of the times in it; None for UTC.
        chat: what people call that chat; empty if the card is shown there.
    """

    id: str
    asked: JsonObject
    session: str
    asker: Sender
    texts: Texts
    zone: tzinfo | None = None
    chat: str = ""

    def message(self, chat: str, role: str, *, seconds: int) -> Outbound:
        """Build the message with buttons for a chat, a session id.

        Args:
            chat: the chat that gets it.
            role: the least role that may answer if the asker may not.
            seconds: how long its buttons count.
        """
        place, is_confirm = find_chat(chat), self.asked["verdict"] == "confirm"
        buttons = ButtonSet(
            tuple(self._buttons()),
            person=self.asker.id if is_confirm else "",
            role=Role.MEMBER if is_confirm else Role(role),
            lifetime_seconds=seconds,
        )
        return Outbound(
            place.channel, place.chat, self.format_open(), place.thread, files=self._files(), buttons=buttons
        )

    def format_open(self) -> str:
        """Format the card as it is asked."""
        say, until = self.texts.say, datetime.fromisoformat(self.asked["expires"])
        moment = f"{until.astimezone(self.zone):%Y-%m-%d %H:%M}"
        lines = [self._describe(), say("approval_how", id=self.id, until=moment)]
        if self.asked.get("cut_off"):
            lines[1] = say("approval_how_cut_off", id=self.id, until=moment)
        return "\n\n".join(lines)

    def format_decided(self, verdict: str, scope: str, by: str, at: datetime, left: Sequence[str] = ()) -> str:
        """Format the card after the answer: who, when, and what; and which of its calls, by their tools, did not run."""
        name = f"approval_line_{scope or 'once'}" if verdict == "approved" else "approval_line_denied"
        moment = f"{at.astimezone(self.zone):%Y-%m-%d %H:%M}"
        lines = [self.texts.say(name, by=escape_markdown(by), moment=moment)]
        if left:
            tools = ", ".join(map(code, dict.fromkeys(left)))
            is_all = len(left) == len(self.asked["calls"])
            lines.append(self.texts.say("approval_line_not_run" if is_all else "approval_line_left", tools=tools))
        return "\n\n".join([self._describe(), "\n".join(lines)])

    def format_details(self) -> str:
        """Format exactly what would happen, as plain text: what a card's file holds."""
        return "\n\n".join(f"{call['tool']}\n{show_details(call['details'])}" for call in self.asked["calls"])

    def _describe(self) -> str:
        say, calls = self.texts.say, self.asked["calls"]
        who = escape_markdown(f"{clean_name(self.asker.name)} ({self.asker.id})" if self.asker.name else self.asker.id)
        if self.chat:
            who = say("approval_who_elsewhere", who=who, chat=code(self.chat))
        title = "approval_title_cut_off" if self.asked.get("cut_off") else "approval_title"
        parts = [say(title, id=self.id, who=who)]
        parts += [say("approval_why", reason=say(f"approval_why_{reason}")) for reason in self.asked["why"]]
        if tainted := self.asked["tainted_by"]:
            entries = ", ".join(f"#{entry}" for _, entry in tainted)
            parts.append(say("approval_tainted", entries=entries))
        if self._is_long:
            tools = dict.fromkeys(call["tool"] for call in calls)
            parts += [say("approval_call_in_file", tool=code(tool)) for tool in tools]
        else:
            parts += [
                f"{say('approval_call', tool=code(call['tool']))}\n{fence(show_details(call['details']))}"
                for call in calls
            ]
        if len(sites := {call.get("site", "") for call in calls}) == 1 and (site := sites.pop()):
            parts.append(say("approval_opens", site=code(site)))
        if "always" in self.asked["scopes"]:
            named = dict.fromkeys((call["tool"], *call["target"].values()) for call in calls if call["target"])
            parts += dict.fromkeys(
                say(
                    f"approval_always_{kind}",
                    tool=code(tool),
                    value=code(show_details(value)[:MAX_VALUE_CHARS]),
                )
                for tool, kind, value in named
            )
            if rest := dict.fromkeys(call["tool"] for call in calls if not call["target"]):
                parts.append(say("approval_always_rest", tools=", ".join(map(code, rest))))
        return "\n\n".join(parts)

    @property
    def _is_long(self) -> bool:
        shown = "\n".join(f"{call['tool']}\n{fence(show_details(call['details']))}" for call in self.asked["calls"])
        return len(shown) > MAX_DETAILS_CHARS or shown.count("\n") > MAX_DETAILS_LINES

    def _files(self) -> tuple[OutboundFile, ...]:
        if not self._is_long:
            return ()
        return (OutboundFile(f"approval-{self.id}.txt", text=self.format_details()),)

    def _buttons(self) -> list[Button]:
        say, is_cut_off = self.texts.say, self.asked.get("cut_off")
        labels = {
            "once": say("approval_button_again" if is_cut_off else "approval_button_once"),
            "chat": say("approval_button_chat"),
            "always": say("approval_button_always"),
        }
        buttons = [
            Button(labels[scope], f"{COMMAND_PREFIX}approve {self.id} {scope}") for scope in self.asked["scopes"]
        ]
        deny = say("approval_button_leave" if is_cut_off else "approval_button_deny")
        return [*buttons, Button(deny, f"{COMMAND_PREFIX}deny {self.id}")]


def show_details(details: str) -> str:
    """Write details so that nothing in them hides: what a screen obeys or does not show is written as its number."""
    details = details.replace("\r\n", "\n")
    hidden = (char for char in set(details) if replace_controls(char) != char or re.match(_INVISIBLE, char))
    return details.translate({ord(char): f"<U+{ord(char):04X}>" for char in hidden} | {ord("\t"): "    "})


def fence(text: str) -> str:
    """Put a text into a code block that it cannot close, and in which no mention and no mark counts."""
    longest = max([2, *map(len, re.findall(_BACKTICKS, text))])
    marks = "`" * (longest + 1)
    return f"{marks}\n{text}\n{marks}"


def code(text: str) -> str:
    """Put a text into a code span on one line, which it cannot close."""
    line = " ".join(show_details(text).split()).replace("`", "<U+0060>")
    return f"`{line}`"


def escape_markdown(text: str) -> str:
    """Write a text on one line of Markdown, so that people read it as it is."""
    return re.sub(_MARKS, r"\\\1", " ".join(show_details(text).split()))
