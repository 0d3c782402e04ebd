"""The agents that the settings name: whom a message asks, and who answers it."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from msgspec import Struct, structs

from bubbot.features.agents.facts import AgentJoined
from bubbot.features.agents.settings import AgentSettings, AgentsSettings
from bubbot.formatting import did_you_mean
from bubbot.ports.agents import BOT_SPEAKER, THE_BOT, Agent, writer_of
from bubbot.ports.channel import FOREIGN_WORDS, CommandInfo, Inbound
from bubbot.tape.entry import Kind, text_field
from bubbot.tape.events import TURN_START
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers
from bubbot.tape.words import fold_text
from bubbot.texts import COMMAND_PREFIX, Texts
from bubbot.tool import Tool

log = logging.getLogger(__name__)

MAX_JOINED_READ = 100
"""The newest facts about agents that joined a chat; each agent joins once."""
TOPIC_PREFIX = "topic/"
"""The beginning of a topic among the places where an agent answers."""
MEMORY_TOOLS = "memory.*"
MAX_TURNS_READ = 50
"""The newest messages, and turns, among which the one that a retry repeats is looked for."""
RETRY_COMMAND = "session.retry"
"""The command that has a message answered again: by whom it asked."""
TEXT_ARGUMENT = "text"
"""The argument of a command that calls an agent, where a platform shows a form for it."""
MAX_NAMES_READ = 128
"""Names at the beginning of a message that are read; a chain has 100 turns at most."""
MAX_OFFERED = 12
"""Agents that menus of commands offer."""
_ARGUMENT = re.compile(rf'{TEXT_ARGUMENT}="((?:[^"]|"")*)"')
_UNSEEN = "\u200b\u200e\u200f\u061c\u202a\u202b\u2066\u2067\u2068\ufeff"
"""What keyboards of other directions put in front of a name."""
_MENTION = re.compile(r"(?<![\w@./])@([a-z][a-z0-9_-]{0,31})(?![\w-])", re.IGNORECASE)
_AFTER = re.compile(r"\s*(?:[,:;!?.…，：；！？、。،؛؟।׃]|$)")
"""What stands after the last name at the beginning of a message, if that calls the agents: "Rosi says so" calls nobody."""
_BETWEEN = re.compile(r"(?:[\s,;:&+、，،]|\b(?:and|und|et|y|e|и|و)\b|和|と)*")
"""What may stand between the names of several agents at the beginning of a message."""


class JoinedView(Struct, frozen=True):
    """The agents that were called in a chat, by name."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest facts, through the name index."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=AgentJoined.EVENTS, newest=True, limit=MAX_JOINED_READ),)

    def fold(self, answers: QueryAnswers) -> frozenset[str]:
        """Return their names."""
        return frozenset([joined.agent for entry in answers[0] if (joined := AgentJoined.try_of(entry)) is not None])


class LastAskedView(Struct, frozen=True):
    """The agent that the newest message asked, as the beginning of its turn says; empty for the bot itself."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest messages, and the newest beginnings of turns."""
        newest = TapeQuery(tape, newest=True, limit=MAX_TURNS_READ)
        return (
            replace(newest, kinds=(Kind.MESSAGE,)),
            replace(newest, kinds=(Kind.EVENT,), names=(TURN_START,)),
        )

    def fold(self, answers: QueryAnswers) -> str:
        """Return its name."""
        messages, starts = answers
        asked = (each for each in messages if each.payload.get("role") == "user" and each.is_shown_to(""))
        turn = next((text_field(each.meta, "turn") for each in asked), "")
        return next((writer_of(start) for start in starts if text_field(start.meta, "turn") == turn), "")


class ConfiguredAgents:
    """The agents of the settings. See `AgentDirectory`.

    Attributes:
        settings: the section.
        bot_name: the name of the bot itself.
    """

    def __init__(
        self,
        settings: AgentsSettings,
        bot_name: str,
        list_tools: Callable[[], Sequence[Tool]],
        find_topic: Callable[[TapeHandle], Awaitable[str]],
        current_session: Callable[[str], str] = lambda session: session,
        *,
        channels: Collection[str] = (),
    ) -> None:
        """Take the settings.

        Args:
            settings: the section.
            bot_name: the name of the bot itself.
            list_tools: returns all tools.
            find_topic: returns the name of the topic that a chat is on; empty for none.
            current_session: returns a session by the current id of its chat.
            channels: the channels of this bot; empty if they are not known.
        """
        self.settings = settings
        self.bot_name = bot_name
        self._list_tools = list_tools
        self._find_topic = find_topic
        self._current_session = current_session
        self._channels = channels
        self._names = _fold_names(settings.named, bot_name)

    @property
    def has_agents(self) -> bool:
        """See `AgentDirectory.has_agents`."""
        return bool(self.settings.named)

    def address(self, inbound: Inbound, quoted_writer: str | None = None) -> Inbound:
        """See `AgentDirectory.address`.

        A message asks the agents whose names it begins with, and those that it mentions as `@name`, where they may be called.
        Else a reply asks the agent that wrote the quoted message. In a group in which an agent answers, a message that asks
        nobody is for the bot all the same; `choose` finds who answers. Words of others, and those of a program, ask nobody.
        """
        is_of_program = inbound.is_plain_text or inbound.is_one_shot
        if not self.settings.named or is_of_program or inbound.provenance == FOREIGN_WORDS:
            return inbound
        text = inbound.text.lstrip()
        if text.startswith(COMMAND_PREFIX):
            name, rest = [*text.removeprefix(COMMAND_PREFIX).split(None, 1), "", ""][:2]
            is_agent = name.lower() in (BOT_SPEAKER, *self.settings.named)
            if not is_agent or self._is_command(name) or not self.may_call(name.lower(), inbound.session):
                return inbound
            if match := _ARGUMENT.fullmatch(rest.strip()):  # as a form of the platform writes it
                rest = match[1].replace('""', '"')
            text = f"@{name.lower()} {rest.strip()}".strip()
            inbound = structs.replace(inbound, text=text)
        asked = [name for name in self._find_called(text) if self.may_call(name, inbound.session)]
        if not asked and quoted_writer is not None and self.may_call(quoted_writer, inbound.session):
            asked = [quoted_writer or BOT_SPEAKER]
        if not asked and self._find_keeper(inbound.session):
            return structs.replace(inbound, addressed=True)
        return structs.replace(inbound, agents=tuple(["" if name == BOT_SPEAKER else name for name in asked]))

    def list_commands(self, texts: Texts, translations: Mapping[str, Texts]) -> list[CommandInfo]:
        """See `AgentDirectory.list_commands`. Menus are those of all chats, so they offer the agents that all may call."""
        taken = {name for tool in self._list_tools() for name in tool.names} if self.has_agents else ()
        agents = [(name, agent) for name, agent in self.settings.named.items() if name not in taken]
        offered = [name for name, agent in agents if not agent.chats][:MAX_OFFERED]
        return [
            CommandInfo(
                name,
                _describe_call(name, agent, texts),
                (TEXT_ARGUMENT,),
                in_menu=name in offered,
                translations={tag: _describe_call(name, agent, other) for tag, other in translations.items()},
            )
            for name, agent in agents
        ]

    async def choose(self, tape: TapeHandle, inbounds: Sequence[Inbound]) -> Agent:
        """See `AgentDirectory.choose`: the first one that is asked, else who answers in this topic or chat, else the bot."""
        if not self.settings.named or inbounds[0].is_plain_text:
            return THE_BOT
        asked = inbounds[0].agents
        name = default = await self.find_default(tape)
        if asked:
            name = asked[0]
        elif self._is_retry(inbounds[0]):
            name = await tape.read(LastAskedView())
        if name not in self.settings.named or not self.may_call(name, tape.session):
            name = ""  # the bot itself, or it was removed since
        return self.make(name, living=await self.find_living(tape, default))

    def make(self, name: str, *, living: frozenset[str] = frozenset()) -> Agent:
        """Return the agent of this name (empty: the bot itself) among those that live in a chat."""
        if not name:
            return structs.replace(THE_BOT, title=self.bot_name, living=living)
        settings = self.settings.named[name]
        return Agent(
            name,
            self.find_title(name),
            settings.prompt,
            settings.model,
            self._choose_tools(settings),
            settings.strategy,
            settings.memory,
            settings.steps or 0,
            living,
        )

    def find_title(self, name: str) -> str:
        """Return the name that people see of an agent; empty is the bot itself. One that is gone is called by its name."""
        return title_of(name, self.settings.named.get(name, AgentSettings())) if name else self.bot_name

    async def find_default(self, tape: TapeHandle) -> str:
        """Return the name of the agent that answers in the topic or the chat of a tape; empty for the bot itself."""
        topics = [(name, each) for name, agent in self.settings.named.items() for each in agent.answers]
        if any(place.startswith(TOPIC_PREFIX) for _, place in topics):
            topic = await self._find_topic(tape)
            wanted = fold_text(topic)
            for name, place in topics:
                is_topic = topic and place.startswith(TOPIC_PREFIX)
                if (
                    is_topic
                    and fold_text(place.removeprefix(TOPIC_PREFIX)) == wanted
                    and self.may_call(name, tape.session)
                ):
                    return name
        return self._find_keeper(tape.session)

    async def find_living(self, tape: TapeHandle, default: str) -> frozenset[str]:
        """Return the agents that live in a chat: who answers there by `default` (the bot itself is the empty name), those
        whose places name it, and those that were called there.
        """
        named = {
            name
            for name, agent in self.settings.named.items()
            if self._covers((*agent.chats, *agent.answers), tape.session)
        }
        joined = [name for name in await tape.read(JoinedView()) if self.may_call(name, tape.session)]
        return frozenset({*named, *joined, default})

    def list_callable(self, session: str) -> list[str]:
        """Return the names of the agents that may be called in a chat."""
        return [name for name in self.settings.named if self.may_call(name, session)]

    def find_mentioned(self, text: str, session: str) -> list[str]:
        """Return the agents that a text mentions as `@name` and that may be called there, in order; empty: the bot."""
        found = [name.lower() for name in _MENTION.findall(text)]
        names = ["" if name == BOT_SPEAKER else name for name in found if self.may_call(name, session)]
        return list(dict.fromkeys(names))

    def log_unknown_names(self) -> None:
        """See `AgentDirectory.log_unknown_names`. A word is wrong, or what it names is not enabled."""
        offered = [tool.name for tool in self._list_tools() if tool.for_model and not tool.is_reserved]
        for name, agent in self.settings.named.items():
            for pattern in agent.tools or ():
                if not any(fnmatchcase(tool, pattern) for tool in offered):
                    _warn(name, "tools", pattern, "names no tool", did_you_mean(pattern, offered, before="; "))
            chats = [place for place in agent.answers if not place.startswith(TOPIC_PREFIX)]
            for key, places in (("chats", agent.chats), ("answers", chats)):
                for place in places:
                    channel = place.partition(":")[0]
                    if self._channels and channel not in self._channels:
                        near = did_you_mean(channel, self._channels, before="; ")
                        _warn(name, key, place, "is on no channel", near)

    def _choose_tools(self, settings: AgentSettings) -> frozenset[str] | None:
        patterns = settings.tools
        has_own_memory = Agent(memory=settings.memory).has_own_memory
        if patterns is None and not has_own_memory:
            return None
        offered = [tool.name for tool in self._list_tools() if tool.for_model and not tool.is_reserved]
        chosen = {
            name for name in offered if patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)
        }
        if has_own_memory:
            chosen = {name for name in chosen if not fnmatchcase(name, MEMORY_TOOLS)}
        return frozenset(chosen)

    def _is_retry(self, inbound: Inbound) -> bool:
        name = inbound.text.strip().removeprefix(COMMAND_PREFIX)
        is_command = inbound.text.lstrip().startswith(COMMAND_PREFIX)
        return is_command and any(tool.name == RETRY_COMMAND and name in tool.names for tool in self._list_tools())

    def _is_command(self, name: str) -> bool:
        return any(name in tool.names for tool in self._list_tools())

    def may_call(self, name: str, session: str) -> bool:
        """Return true if an agent, or the bot itself, may be called in a chat."""
        if name in ("", BOT_SPEAKER):
            return True
        agent = self.settings.named.get(name)
        if agent is None:
            return False
        return not agent.chats or self._covers((*agent.chats, *agent.answers), session)

    def _covers(self, places: Sequence[str], session: str) -> bool:
        """Return true if one of these places is a session, its chat or its channel."""
        channel, chat = session.partition(":")[0], ":".join(session.split(":", 2)[:2])
        names = {session, chat, channel, self._current_session(session), self._current_session(chat)}
        return not names.isdisjoint(places)

    def _find_keeper(self, session: str) -> str:
        """Return the agent that answers in a chat; empty for the bot itself."""
        named = self.settings.named.items()
        return next((name for name, agent in named if self._covers(agent.answers, session)), "")

    def _find_called(self, text: str) -> list[str]:
        """Return the agents whose names stand at the beginning of a text, and those that it mentions."""
        folded, found, start, called = fold_text(text).lstrip(_UNSEEN), list[str](), 0, 0
        while len(found) < MAX_NAMES_READ and (match := self._match_name(folded, start)):
            name, end = match
            found.append(name)
            called = len(found) if _AFTER.match(folded, end) else called
            between = _BETWEEN.match(folded, end)
            start = between.end() if between else end
        mentioned = [name.lower() for name in _MENTION.findall(text)]
        known = [name for name in mentioned if name == BOT_SPEAKER or name in self.settings.named]
        return list(dict.fromkeys([*found[:called], *known]))

    def _match_name(self, folded: str, start: int) -> tuple[str, int] | None:
        """Find the agent whose name stands at a place of a text as a whole word; return it with the end of the name."""
        for known, name in self._names.items():
            end = start + len(known)
            if folded.startswith(known, start) and (
                end == len(folded) or not (folded[end].isalnum() or folded[end] in "_-'’")
            ):
                return name, end
        return None


def _warn(name: str, key: str, value: str, problem: str, hint: str) -> None:
    log.warning(
        "[agents.%s] %s has %r, which %s of this bot%s",
        name,
        key,
        value,
        problem,
        hint,
        extra={"action": "agents.unknown"},
    )


def _describe_call(name: str, agent: AgentSettings, texts: Texts) -> str:
    ask = texts.say("agent_ask", name=title_of(name, agent))
    return f"{ask}: {agent.about}" if agent.about else ask


def title_of(name: str, settings: AgentSettings) -> str:
    """Return the name of an agent that people see."""
    return settings.title or name


def _fold_names(named: Mapping[str, AgentSettings], bot_name: str) -> dict[str, str]:
    """Return the agents by the names with which people call them at the beginning of a message, the longest first."""
    names = {fold_text(each).strip(): name for name, agent in named.items() for each in agent.spoken_names(name)}
    names[fold_text(bot_name).strip()] = BOT_SPEAKER
    names.pop("", None)
    return dict(sorted(names.items(), key=lambda item: -len(item[0])))
