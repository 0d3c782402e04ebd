"""The card: what people read before they answer. It is built from the facts, so that it is the same at each time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

from msgspec import Struct

from bubbot.features.approvals.facts import ApprovalAsked, ApprovalDecided, ApprovalOpened
from bubbot.formatting import code, escape_markdown, fence, show_details
from bubbot.ports.channel import Button, ButtonSet, Outbound, OutboundFile, Role
from bubbot.ports.session_names import split_session
from bubbot.runtime.context.quoting import clean_name
from bubbot.texts import COMMAND_PREFIX, Texts

MAX_DETAILS_CHARS = 1_200
"""Characters of details, as they are shown, in the card itself, in all; more go into a file, whole: no platform then cuts a card."""
MAX_DETAILS_LINES = 40
MAX_NAMED = 5
"""Things that a yes for longer than once would cover; beyond, each such call needs a yes of its own."""
MAX_VALUE_CHARS = 200
"""Characters of what a grant would cover; it stands in the details, too, whole."""
HOUR_SECONDS = 3600


class ApprovalCard(Struct, frozen=True):
    """A card.

    Attributes:
        asked: what it asks for.
        opened: where, and by whom.
        texts: the bot's own sentences.
        zone: of the times in it; None for UTC.
        chat: what people call the chat in which it came up; empty if the card is shown there.
    """

    asked: ApprovalAsked
    opened: ApprovalOpened
    texts: Texts
    zone: tzinfo | None = None
    chat: str = ""

    def message(self, session: str, role: str, *, seconds: int) -> Outbound:
        """Build the message with buttons for a chat.

        Args:
            session: the chat that gets it.
            role: the least role that may answer if the asker may not.
            seconds: how long its buttons count.
        """
        place, is_confirm = split_session(session), self.asked.verdict == "confirm"
        buttons = ButtonSet(
            tuple(self._buttons()),
            person=self.opened.asker if is_confirm else "",
            role=Role.MEMBER if is_confirm else Role(role),
            lifetime_seconds=seconds,
        )
        return Outbound(
            place.channel, place.chat, self.format_open(), place.thread, files=self._files(), buttons=buttons
        )

    def format_open(self) -> str:
        """Format the card as it is asked."""
        name = "approval_how_cut_off" if self.asked.is_cut_off else "approval_how"
        until = self._moment(datetime.fromisoformat(self.asked.expires))
        return "\n\n".join([self._describe(), self.texts.say(name, id=self.asked.id, until=until)])

    def format_decided(self, decided: ApprovalDecided, at: datetime, left: Sequence[str] = ()) -> str:
        """Format the card after the answer: who, when, and what; and which of its calls, by their tools, did not run."""
        name = f"approval_line_{decided.scope or 'once'}" if decided.verdict == "approved" else "approval_line_denied"
        lines = [self.texts.say(name, by=escape_markdown(decided.person), moment=self._moment(at))]
        if left:
            tools = ", ".join(map(code, dict.fromkeys(left)))
            is_all = len(left) == len(self.asked.calls)
            lines.append(self.texts.say("approval_line_not_run" if is_all else "approval_line_left", tools=tools))
        return "\n\n".join([self._describe(), "\n".join(lines)])

    def _moment(self, at: datetime) -> str:
        return f"{at.astimezone(self.zone):%Y-%m-%d %H:%M}"

    def _describe(self) -> str:
        say, asked, name = self.texts.say, self.asked, clean_name(self.opened.asker_name)
        who = escape_markdown(f"{name} ({self.opened.asker})" if self.opened.asker_name else self.opened.asker)
        if self.chat:
            who = say("approval_who_elsewhere", who=who, chat=code(self.chat))
        title = "approval_title_cut_off" if asked.is_cut_off else "approval_title"
        if self.opened.command:
            return "\n\n".join([say("approval_title_question", id=asked.id, who=who), *self._format_question()])
        if agent := self.opened.agent_title or "":
            parts = [say(f"{title}_agent", id=asked.id, who=who, agent=escape_markdown(clean_name(agent)))]
        else:
            parts = [say(title, id=asked.id, who=who)]
        parts += [say("approval_why", reason=say(f"approval_why_{reason}")) for reason in asked.why]
        if asked.tainted_by:
            entries = ", ".join(f"#{entry}" for _, entry in asked.tainted_by)
            parts.append(say("approval_tainted", entries=entries))
        if self._is_long:
            tools = dict.fromkeys(call.tool for call in asked.calls)
            parts += [say("approval_call_in_file", tool=code(tool)) for tool in tools]
        else:
            parts += [
                f"{say('approval_call', tool=code(call.tool))}\n{fence(show_details(call.details))}"
                for call in asked.calls
            ]
        if asked.site:
            parts.append(say("approval_opens", site=code(asked.site)))
        if "always" in asked.scopes:
            named = dict.fromkeys((call.tool, call.target) for call in asked.calls if call.target)
            parts += dict.fromkeys(
                say(
                    f"approval_always_{target.kind}",
                    tool=code(tool),
                    value=code(show_details(target.value)[:MAX_VALUE_CHARS]),
                )
                for tool, target in named
            )
            if rest := dict.fromkeys(call.tool for call in asked.calls if not call.target):
                parts.append(say("approval_always_rest", tools=", ".join(map(code, rest))))
        return "\n\n".join(parts)

    def _format_question(self) -> list[str]:
        """Format what a question of a feature is about."""
        if self._is_long:
            return [self.texts.say("approval_call_in_file", tool=code(call.tool)) for call in self.asked.calls]
        return [fence(show_details(call.details)) for call in self.asked.calls]

    @property
    def _is_long(self) -> bool:
        shown = "\n".join(f"{call.tool}\n{fence(show_details(call.details))}" for call in self.asked.calls)
        return len(shown) > MAX_DETAILS_CHARS or shown.count("\n") > MAX_DETAILS_LINES

    def _files(self) -> tuple[OutboundFile, ...]:
        if not self._is_long:
            return ()
        return (OutboundFile(f"approval-{self.asked.id}.txt", text=format_details(self.asked)),)

    def _buttons(self) -> list[Button]:
        say, asked = self.texts.say, self.asked
        yes = "approval_button_again" if asked.is_cut_off else "approval_button_once"
        labels = {
            "once": say("approval_button_yes" if self.opened.command else yes),
            "chat": say("approval_button_chat"),
            "always": say("approval_button_always"),
        }
        buttons = [Button(labels[scope], f"{COMMAND_PREFIX}approve {asked.id} {scope}") for scope in asked.scopes]
        deny = say("approval_button_leave" if asked.is_cut_off else "approval_button_deny")
        return [*buttons, Button(deny, f"{COMMAND_PREFIX}deny {asked.id}")]


def format_details(asked: ApprovalAsked) -> str:
    """Format exactly what would happen, as plain text: what a card's file holds."""
    return "\n\n".join(f"{call.tool}\n{show_details(call.details)}" for call in asked.calls)
