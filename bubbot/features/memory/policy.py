"""Policies: from which nodes a chat's memory view is assembled, and how these share its budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.features.memory.facts import ViewChosen
from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.formatting import did_you_mean
from bubbot.ports.memory import ZONES_VIEW, ChooseMemory, InstalledMemory, MemoryNode, MemoryStrategy
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

DEFAULT = "default"
"""The word that takes a choice back."""
PolicyOrigin: TypeAlias = Literal["configured", "chosen", "gone", "failed"]
"""Why a policy applies: the settings name it; the chat chose it; the chosen one is gone; it cannot be used."""


class MemoryPolicy(Struct, frozen=True):
    """From which nodes a memory view is assembled, under which budget.

    Attributes:
        name: `zones`, the name of a table, or of a package.
        nodes: in the order in which they are shown; none: the zones that are on.
        max_tokens: what it may show; None: `[memory] block_tokens`.
        choose: chooses among what the nodes bring; None: by weight, newest first.
    """

    name: str = ZONES_VIEW
    nodes: tuple[MemoryNode, ...] = ()
    max_tokens: int | None = None
    choose: ChooseMemory | None = None

    @property
    def is_default(self) -> bool:
        """True for the zones as they are shown without a policy."""
        return self.name == ZONES_VIEW

    @property
    def quotes(self) -> bool:
        """True if it shows more than zones, which is quoted beside messages."""
        return any(node.kind != "zone" for node in self.nodes)


class PolicyInUse(Struct, frozen=True):
    """The policy of a chat.

    Attributes:
        policy: the policy.
        origin: why it applies.
        wanted: the name of the one that was to apply.
        problem: why that one does not; empty if it does.
    """

    policy: MemoryPolicy
    origin: PolicyOrigin = "configured"
    wanted: str = ZONES_VIEW
    problem: str = ""


class ChosenView(Struct, frozen=True):
    """The memory view that a chat has chosen; empty for the configured one."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest choice, through the name index."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=ViewChosen.EVENTS, newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> str:
        """Return what it says."""
        chosen = ViewChosen.try_of(answers[0][0]) if answers[0] else None
        return chosen.view if chosen else ""


def list_views(settings: MemorySettings, installed: InstalledMemory) -> tuple[str, ...]:
    """List the names of the memory views that there are."""
    return tuple(dict.fromkeys([ZONES_VIEW, *settings.views, *installed.names]))


def find_policy(name: str, settings: MemorySettings, installed: InstalledMemory) -> MemoryPolicy:
    """Find a policy. Raise `ConfigError` if there is none of this name, with the nearest one, or if it cannot be used."""
    if name == ZONES_VIEW:
        return MemoryPolicy()
    if name in settings.views:
        table = settings.views[name]
        choose = _load(table.strategy, installed).choose if table.strategy else None
        return MemoryPolicy(name, table.parsed_nodes, table.max_tokens, choose)
    if name in installed.names:
        strategy = _load(name, installed)
        zones = [MemoryNode("zone", scope.value) for scope in settings.scopes]
        return MemoryPolicy(name, tuple(strategy.nodes) or tuple(zones), None, strategy.choose)
    names = list_views(settings, installed)
    raise ConfigError(f"there is no memory view {name!r}: {', '.join(names)}{did_you_mean(name, names, before='; ')}")


def _load(name: str, installed: InstalledMemory) -> MemoryStrategy:
    if installed.load is None or name not in installed.names:
        names = ", ".join(installed.names) or "none"
        hint = did_you_mean(name, installed.names, before="; ")
        raise ConfigError(f"no package offers the memory strategy {name!r}: there are {names}{hint}")
    return installed.load(name)


def choose_policy(chosen: str, settings: MemorySettings, installed: InstalledMemory) -> PolicyInUse:
    """Choose the policy of a chat by its own choice, else the configured one, else the zones."""
    names, origin = list_views(settings, installed), "configured"
    wanted = chosen or settings.view
    if chosen and chosen in names:
        origin = "chosen"
    elif chosen:
        return PolicyInUse(choose_policy("", settings, installed).policy, "gone", chosen, "there is no such view")
    try:
        policy = find_policy(wanted, settings, installed)
    except ConfigError as error:
        return PolicyInUse(MemoryPolicy(), "failed", wanted, str(error))
    return PolicyInUse(policy, "chosen" if origin == "chosen" else "configured", wanted)


class Claim(Struct, frozen=True):
    """What a node claims of a budget, in tokens.

    Attributes:
        weight: its weight against the others.
        wanted: what it could use.
    """

    weight: float
    wanted: int


def share_budget(total: int, claims: Sequence[Claim]) -> list[int]:
    """Share a budget by weight; what one does not need goes to the others, by weight again."""
    rooms, left = [0] * len(claims), max(total, 0)
    open_claims = [place for place, claim in enumerate(claims) if claim.wanted > 0]
    while open_claims and left > 0:
        weights = sum(claims[place].weight for place in open_claims)
        parts = {place: int(left * claims[place].weight / weights) for place in open_claims}
        content = [place for place in open_claims if claims[place].wanted <= parts[place]]
        if not content:
            for place in open_claims:
                rooms[place] = parts[place]
            break
        for place in content:
            rooms[place] = claims[place].wanted
            left -= claims[place].wanted
            open_claims.remove(place)
    return rooms


def scope_of(node: MemoryNode) -> Scope:
    """Return the scope that a node of the kind `zone` names."""
    return Scope(node.name)
