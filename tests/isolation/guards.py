"""What keeps words where they belong, and how to take each of it away."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from msgspec import structs

from bubbot.app.reading import session_reader
from bubbot.command import Caller
from bubbot.errors import EntryNotFound
from bubbot.feature import ReadSession
from bubbot.features.access.links import AccountLinks
from bubbot.features.access.service import AccessService
from bubbot.features.access.state import AccessState
from bubbot.features.agents.calls import AgentCalls
from bubbot.features.agents.directory import ConfiguredAgents
from bubbot.features.files import roots as files
from bubbot.features.memory import feature as memory_feature
from bubbot.features.memory import memories, shared_zone
from bubbot.features.memory.scopes import user_tape
from bubbot.features.otel.content import Exposure
from bubbot.features.schedule.state import ScheduleState
from bubbot.features.search import view as search_view
from bubbot.features.search.view import SearchView
from bubbot.features.strategies import recall, retrieval
from bubbot.features.topics import reading
from bubbot.features.topics.commands import require_session
from bubbot.features.trace import pages, request
from bubbot.features.trace.tokens import TraceTokens
from bubbot.features.views import showing
from bubbot.gateway.admission import AdmissionPolicy, Respond
from bubbot.log import Redactor
from bubbot.ports.access import higher_role
from bubbot.ports.agents import Agent
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.ports.turn import Turn
from bubbot.runtime.context import handoffs, speakers
from bubbot.runtime.context.view import ContextView
from bubbot.server import network, remote
from bubbot.server.remote import RemoteChannel
from bubbot.stores.sqlite.index import fill
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import TapeEntry, list_searchable
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import TapeQuery
from channels.discord.sender import DiscordSender
from channels.telegram.sender import TelegramSender
from tests.isolation.boundaries import ShowsAllFacts, ShowsAllSessions, ShowsAllTapes, TrustsSubjects, weaken

Removal: TypeAlias = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Guard:
    """What keeps words where they belong.

    Attributes:
        remove: takes it away.
        seed: tried first; with it, somebody sees too much early.
    """

    remove: Removal
    seed: int = 1


def replaced(target: object, name: str, by: object) -> Removal:
    """Take away a guard that is one function."""
    return lambda patch: patch.setattr(target, name, by)


def _agree(*_: object) -> bool:
    return True


async def _change_nothing(*_: object) -> None:
    """In place of taking something back."""


# Other chats


def _read_from_threads(patch: pytest.MonkeyPatch) -> None:
    """Let a thread read every chat, and not only its own."""

    def build_reader(open_tape: Any, may_read: Callable[[str, str], bool], *rest: Any) -> ReadSession:
        of_chats, of_threads = session_reader(open_tape, may_read, *rest), session_reader(open_tape, _agree, *rest)

        async def read(turn: Turn, source: str) -> TapeHandle:
            is_thread = bool(turn.inbounds and turn.inbounds[0].inbound.thread)
            return await (of_threads if is_thread else of_chats)(turn, source)

        return read

    patch.setattr("bubbot.app.bot.session_reader", build_reader)


def _trust_bindings(patch: pytest.MonkeyPatch) -> None:
    """Let whoever has bound a topic to a chat read there."""
    bound = set[tuple[str, str]]()

    async def require_nothing(turn: Turn, source: str, read_session: ReadSession) -> Any:
        if not turn.inbounds[0].inbound.text.startswith(",topic"):  # `chat.read` opens what was bound
            return await require_session(turn, source, read_session)
        bound.add((turn.session, source))
        return SimpleNamespace(session=source)

    patch.setattr("bubbot.features.topics.commands.require_session", require_nothing)

    def build_reader(open_tape: Any, may_read: Callable[[str, str], bool], *rest: Any) -> ReadSession:
        return session_reader(
            open_tape, lambda reader, source: (reader, source) in bound or may_read(reader, source), *rest
        )

    patch.setattr("bubbot.app.bot.session_reader", build_reader)


def _read_deleted(patch: pytest.MonkeyPatch) -> None:
    """Let others read what was deleted."""

    def find(entries: Sequence[TapeEntry]) -> Corrections:
        return structs.replace(Corrections.of(entries), hidden=frozenset())

    patch.setattr(reading, "Corrections", SimpleNamespace(of=find))


async def _cover_everything(*_: object) -> bool:
    return True


# Memory

_choose_zones = vars(memories)["choose_zones"]


def _choose(**facts: Any) -> Removal:
    """Let the rule about memory see other facts."""
    return replaced(
        memories, "choose_zones", lambda real, enabled: _choose_zones(structs.replace(real, **facts), enabled)
    )


async def _link_everybody(*_: object) -> tuple[tuple[str, str], ...]:
    return (("tg", "1"), ("tg", "5"), ("tg", "7"), ("dc", "11"), ("dc", "15"))


async def _unlink_nothing(*_: object) -> tuple[tuple[str, str], ...]:
    return (("tg", "9"),)


# One tape


def _read_elsewhere(patch: pytest.MonkeyPatch, target: object) -> None:
    """Let queries of a module go to another tape than the one that was named."""
    tapes: list[str] = []

    def query(tape: str, *part: Any, **options: Any) -> TapeQuery:
        tapes.append(tape)
        return TapeQuery(next((other for other in tapes if other != tape), tape), *part, **options)

    patch.setattr(target, "TapeQuery", query)


def _search_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """Search the tape on which the chat before searched."""
    tapes, steps = list[str](), SearchView.steps

    def search(view: SearchView, tape: str) -> Generator[Any, Any, Any]:
        tapes.append(tape)
        return (yield from steps(view, next((other for other in reversed(tapes) if other != tape), tape)))

    patch.setattr(SearchView, "steps", search)


def _recall_subtasks(patch: pytest.MonkeyPatch) -> None:
    for module in (retrieval, recall):
        patch.setattr(
            module, "is_evidence", lambda entry: not entry.erased and bool(retrieval.evidence_text(entry).strip())
        )


def _open_blobs_of_others(patch: pytest.MonkeyPatch) -> None:
    """Find a blob by its digest alone."""
    get_blob = SqliteStore.get_blob

    async def get(store: SqliteStore, tape: str, digest: str) -> bytes:
        for name in (tape, *(each.name for each in await store.tapes())):
            try:
                return await get_blob(store, name, digest)
            except EntryNotFound:
                continue
        raise EntryNotFound(digest)

    patch.setattr(SqliteStore, "get_blob", get)


# Agents


def _choose_view_of_chat(memories_: memories.Memories, tape: TapeHandle, *_: object) -> Any:
    return memories.find_policy_of(tape, memories_.settings, memories_.sources.installed)


def _remember_for_all(patch: pytest.MonkeyPatch) -> None:
    """Let the agent without memory be shown that of the chat."""
    for module in (memories, memory_feature):
        patch.setattr(module, "NO_MEMORY", "no agent has this")
    patch.setattr(memories.Memories, "find_policy", _choose_view_of_chat)


def _is_known(agents: ConfiguredAgents, name: str, _session: str) -> bool:
    return name in ("", "bot", *agents.settings.named)


_build_call = vars(AgentCalls)["_build"]


def _work_for_owner(*part: Any, **options: Any) -> Inbound:
    """Let whoever is called by an agent work for an owner, whoever asked."""
    asked: Inbound = _build_call(*part, **options)
    return structs.replace(asked, sender=Sender({"tg": "1", "dc": "11"}.get(asked.channel, "0")))


def _give_rights(_calls: AgentCalls, turn: Turn, _inbound: Inbound) -> None:
    """Let whoever is called by an agent do what owners may."""
    turn.role = Role.OWNER


def _search_subtasks(patch: pytest.MonkeyPatch) -> None:
    """Let searches find what branches and other sub-tasks wrote."""

    def search(kind: str, payload: Mapping[str, Any], _meta: object) -> list[str]:
        return list_searchable(kind, payload, {})

    for module in (search_view, fill):
        patch.setattr(module, "list_searchable", search)


# Powers


def _give_power(patch: pytest.MonkeyPatch) -> None:
    """Let everybody's commands show what only an owner in a direct chat is shown."""
    of_turn = Caller.of_turn

    def make(turn: Turn, *, has_confirmed: bool = False) -> Caller:
        return replace(of_turn(turn, has_confirmed=has_confirmed), has_power=True)

    patch.setattr(Caller, "of_turn", make)


def _own_power_in_groups(patch: pytest.MonkeyPatch) -> None:
    """Let an owner use the powers over other chats in groups, too."""
    power = property(lambda turn: turn.role.at_least(Role.OWNER))
    patch.setattr(Turn, "has_power_over_other_chats", power)


def _ignore_roles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Role, "at_least", _agree)


def _let_strangers_change(patch: pytest.MonkeyPatch) -> None:
    """Let everybody edit messages and react to them."""
    role = AdmissionPolicy.role
    patch.setattr(AdmissionPolicy, "role", lambda rules, sent: higher_role(role(rules, sent), Role.MEMBER))


# Platforms and programs


def _forget_threads_of_telegram(patch: pytest.MonkeyPatch) -> None:
    """Send what is said in a thread to its chat."""
    send = TelegramSender.send
    patch.setattr(TelegramSender, "send", lambda sender, part: send(sender, structs.replace(part, thread="")))


def _forget_threads_of_discord(patch: pytest.MonkeyPatch) -> None:
    """Send what is said in a thread to its channel."""
    send = DiscordSender.send
    patch.setattr(DiscordSender, "send", lambda sender, part: send(sender, structs.replace(part, thread="")))


def _find_all_programs(channel: RemoteChannel, session: str) -> list[remote.ChatClient]:
    """Show what is said in one session to the programs of all."""
    attached: dict[str, list[remote.ChatClient]] = vars(channel)["_attached"]
    own = attached.get(session, [])
    others = [client for clients in attached.values() for client in clients if client not in own]
    return [client for client in (*others, *own) if not client.is_closed]


def _is_connected(sender: remote.RemoteSender, _session: str) -> bool:
    return not sender.client.is_closed


GUARDS: Mapping[str, Guard] = {
    "the grant": Guard(replaced(AccessService, "may_read", _agree)),
    "taking a grant back": Guard(replaced(AccessService, "revoke_reading", _change_nothing)),
    "the chat of a thread": Guard(_read_from_threads),
    "the binding of a topic": Guard(_trust_bindings, seed=0),
    "what was deleted": Guard(_read_deleted, seed=0),
    "what a handoff sums up": Guard(replaced(handoffs, "_rests_on_messages", _cover_everything), seed=0),
    "own memory in groups": Guard(_choose(is_direct=True)),
    "own memory elsewhere": Guard(_choose(replies_elsewhere=False)),
    "who writes for everybody": Guard(_choose(role=Role.OWNER)),
    "whose memory it is": Guard(replaced(shared_zone, "user_tape", lambda _: user_tape(("tg", "1")))),
    "whose accounts are linked": Guard(replaced(AccountLinks, "linked_accounts", _link_everybody)),
    "taking a link back": Guard(replaced(AccessService, "unlink", _unlink_nothing)),
    "the workspace of a chat": Guard(replaced(files, "workspace_folder", lambda home, _: home / "sessions")),
    "the tape of a search": Guard(_search_elsewhere),
    "the tape of evidence": Guard(lambda patch: _read_elsewhere(patch, retrieval)),
    "sub-tasks in evidence": Guard(_recall_subtasks, seed=0),
    "sub-tasks for others": Guard(replaced(TapeEntry, "is_shown_to", _agree)),
    "the tape of a blob": Guard(_open_blobs_of_others),
    "what agents see of each other": Guard(replaced(speakers, "_see", lambda entry, _: entry)),
    "evidence of another agent": Guard(
        replaced(ContextView, "is_for_viewer", lambda view, fact: fact.is_shown_to(view.fork))
    ),
    "the view of an agent": Guard(replaced(showing, "is_for_agent", _agree), seed=0),
    "the memory of an agent": Guard(replaced(memories.Memories, "find_policy", _choose_view_of_chat)),
    "an agent without memory": Guard(_remember_for_all),
    "what an agent may look up": Guard(replaced(Agent, "may_read", _agree)),
    "the tools of an agent": Guard(replaced(ConfiguredAgents, "_choose_tools", lambda *_: None)),
    "where an agent may be called": Guard(replaced(ConfiguredAgents, "may_call", _is_known)),
    "sub-tasks in searches": Guard(_search_subtasks, seed=0),
    "for whom an agent works": Guard(replaced(AgentCalls, "_build", _work_for_owner)),
    "the rights of an agent": Guard(replaced(AgentCalls, "prepare", _give_rights)),
    "an owner's power": Guard(_give_power),
    "an owner's power in groups": Guard(_own_power_in_groups, seed=0),
    "the jobs of a chat": Guard(replaced(ScheduleState, "jobs_of", lambda state, _: list(state.jobs.values()))),
    "roles": Guard(_ignore_roles),
    "who may speak": Guard(replaced(AdmissionPolicy, "decide", lambda *_: Respond(Role.MEMBER))),
    "the content of spans": Guard(replaced(Exposure, "has_content", property(_agree))),
    "which tapes a shell exports": Guard(
        lambda patch: patch.setattr("bubbot.cli.tape.files.require_user_tape", lambda *_: None)
    ),
    "the tapes of an auditor": Guard(weaken(ShowsAllTapes)),
    "secrets in the log": Guard(replaced(Redactor, "__call__", lambda _, text: text)),
    "the sessions of an auditor": Guard(weaken(ShowsAllSessions)),
    "the facts of an auditor": Guard(weaken(ShowsAllFacts)),
    "the subjects of an auditor": Guard(weaken(TrustsSubjects)),
    "whose memory stands in a prompt": Guard(replaced(request, "may_see_system", _agree), seed=0),
    "which blobs are prompts": Guard(replaced(pages, "may_open_blobs", _agree)),
    "which sessions are audited": Guard(
        replaced(AccessState, "audited_sessions", lambda *_: frozenset({"tg:1", "tg:5"}))
    ),
    "taking an audit back": Guard(replaced(AccessService, "revoke_audit", _change_nothing)),
    "who may react or change": Guard(_let_strangers_change, seed=2),
    "the thread of a message on Telegram": Guard(_forget_threads_of_telegram),
    "the thread of a message on Discord": Guard(_forget_threads_of_discord),
    "the token of programs": Guard(replaced(network, "compare_digest", _agree)),
    "the programs of a chat": Guard(replaced(RemoteChannel, "_clients", _find_all_programs)),
    "which program asked": Guard(replaced(remote.RemoteSender, "waits_in", _is_connected)),
    "the channel of programs": Guard(replaced(RemoteChannel, "_require_own", lambda *_: None)),
    "whose token it is": Guard(replaced(TraceTokens, "read", lambda *_: SimpleNamespace(person="tg:1", seconds=60))),
}
