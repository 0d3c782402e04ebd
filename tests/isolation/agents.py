"""Which agent may be shown what: words that no model repeats, each of which belongs to one agent, memory, chat or branch."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import count
from typing import Any, Literal, TypeAlias

PRIVATE = re.compile(r"zp\d{5}x")
"""A word that the model never repeats: it is where it was written, and where the bot has put it."""
AGENTS: Mapping[str, Mapping[str, Any]] = {
    "rosi": {"title": "Rosi", "about": "cooking", "prompt": "You are Rosi, a cook."},
    "tilda": {"title": "Tilda", "chats": ["tg:-8"]},
    "kate": {"title": "Kate", "answers": ["dc:90:904"]},
    "nemo": {"title": "Nemo", "memory": "none"},
    "vera": {"title": "Vera", "memory": "narrow"},
    "tom": {"title": "Tom", "tools": ["tape.search", "file.*"]},
}
"""For all chats, for one group, the one that answers in a thread, without memory, with a view of its own, with few tools."""
BOT_NODES = ("zone chat", "zone user", "zone workspace", "topic current", "tape tg:-8", "tape tg:5", "tape dc:15")
"""The memory view of every chat, and so of every agent that has no other."""
NARROW_NODES = ("zone user", "tape tg:7")
WordKind: TypeAlias = Literal["call", "memory", "said", "branch call", "branch answer", "task"]
Viewer: TypeAlias = tuple[str, str]
"""A session, and the agent that is asked there; empty for the bot itself."""


@dataclass(frozen=True)
class PrivateWord:
    """A word, and to whom it belongs.

    Attributes:
        kind: it stands in a call of an agent, in memory, in a message of a person, or in a branch or another sub-task.
        agent: the agent that wrote it.
        scope: the memory that it is in.
        turn: the turn that wrote it.
        fork: the sub-task that wrote it.
        branch: the group and the number of the branch.
    """

    kind: WordKind
    session: str
    agent: str = ""
    scope: str = ""
    turn: str = ""
    fork: str = ""
    branch: tuple[str, int] = ("", 0)


@dataclass
class AgentOracle:
    """Who may be shown which private word.

    Attributes:
        words: all that were written.
        found: by session, agent and fork, what the tools of an agent have shown it.
        results: by session, what stands in results on its tape.
        views: which session (first) is shown a view of which other one: of what, and for which agent.
        bound: which session (first) went on with a topic of which other one.
        handed: by session, what its people handed over in a file.
        groups: by session, the newest group of branches.
    """

    words: dict[str, PrivateWord] = field(default_factory=dict)
    found: defaultdict[tuple[str, str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    results: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    views: set[tuple[str, str, str, str]] = field(default_factory=set)
    bound: set[tuple[str, str]] = field(default_factory=set)
    handed: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    groups: dict[str, str] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def invent(self) -> str:
        """Return a new word, which belongs to nobody yet."""
        return f"zp{next(self._numbers):05}x"

    def write(self, kind: WordKind, session: str, scope: str = "") -> str:
        """Return a new word that a person writes."""
        word = self.invent()
        self.words[word] = PrivateWord(kind, session, scope=scope)
        return word

    def note(self, text: str, known: PrivateWord) -> None:
        """Note the words in a text that are new: they belong to whoever wrote it."""
        for word in PRIVATE.findall(text):
            self.words.setdefault(word, known)

    def hand_over(self, text: str, session: str) -> None:
        """Note what a person says by handing over a file, as far as the bot itself may know it there."""
        self.handed[session] |= {*PRIVATE.findall(text)} - {*self.hidden(text, (session, ""))}

    def choose(self, session: str, agent: str, group: str, number: int) -> None:
        """A branch becomes part of the conversation: its calls are those of its agent."""
        branch = group or self.groups.get(session, ""), number
        for word, known in self.words.items():
            if known.branch == branch and known.session == session and known.kind.startswith("branch"):
                kind: WordKind = "call" if known.kind == "branch call" else "said"
                self.words[word] = replace(known, kind=kind, agent=known.agent or agent, fork="", branch=("", 0))

    def hidden(self, text: str, viewer: Viewer, *, turn: str = "", fork: str = "") -> list[str]:
        """Return the words in a request that the agent may not be shown; a sub-task has a fork."""
        return sorted(word for word in set(PRIVATE.findall(text)) if not self._is_visible(word, viewer, turn, fork))

    def find(self, text: str, viewer: Viewer, *, tool: str, turn: str = "", fork: str = "") -> list[str]:
        """Note what a tool has shown an agent; return the words that it may not look up, and does not know anyway."""
        words = self.hidden(text, viewer, turn=turn, fork=fork)
        refused = [word for word in words if not self._may_look_up(word, viewer, tool)]
        self.found[*viewer, fork] |= {*words} - {*refused}
        if not fork:
            self.results[viewer[0]] |= {*words} - {*refused}
        return refused

    def may_be_in(self, agent: str, session: str) -> bool:
        """Return true if an agent may be called in a session."""
        chats = AGENTS[agent].get("chats") if agent else None
        return not chats or any(f"{session}:".startswith(f"{chat}:") for chat in chats)

    def may_call(self, agent: str, tool: str) -> bool:
        """Return true if an agent may call a tool."""
        settings = AGENTS.get(agent, {})
        if _has_own_memory(agent) and tool.startswith("memory."):
            return False
        return "tools" not in settings or any(fnmatchcase(tool, pattern) for pattern in settings["tools"])

    def _is_visible(self, word: str, viewer: Viewer, turn: str, fork: str) -> bool:
        session, agent = viewer
        known = self.words.get(word)
        if known is None or word in self.handed[session]:  # the model is about to write it, or people did
            return True
        forks = [fork[:place] for place in range(len(fork) + 1) if place in (0, len(fork)) or fork[place] == "/"]
        if any(word in self.found[*viewer, each] for each in forks):
            return True
        if known.fork:
            return f"{fork}/".startswith(f"{known.fork}/")
        if fork and known.turn == turn and turn:  # the call that ordered it
            return True
        if known.kind == "call":
            return viewer == (known.session, known.agent)
        if known.kind == "memory":
            return f"zone {known.scope}" in _nodes(agent)
        return session == known.session or self._is_shown(session, known.session, agent)

    def _is_shown(self, session: str, source: str, agent: str) -> bool:
        """Return true if an agent may be shown messages of another session without asking for them."""
        by_view = any(view[:2] == (session, source) and view[3] in ("", agent or "bot") for view in self.views)
        return by_view or (session, source) in self.bound or f"tape {source}" in _nodes(agent)

    def _may_look_up(self, word: str, viewer: Viewer, tool: str) -> bool:
        known = self.words[word]
        if known.fork and tool == "tape.search":  # what a sub-task wrote has no words for a search
            return word in self.results[viewer[0]] and not _has_own_memory(viewer[1])
        return not _has_own_memory(viewer[1]) or known.kind == "said"


def _has_own_memory(agent: str) -> bool:
    return bool(agent and AGENTS[agent].get("memory"))


def _nodes(agent: str) -> Iterable[str]:
    return {"none": (), "narrow": NARROW_NODES}.get(AGENTS[agent].get("memory", "") if agent else "", BOT_NODES)
