"""Plays people and an outside service for a bot that is killed while it acts, and then counts what happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, ClassVar

from tests.e2e import forked
from tests.e2e.kill_harness import Bench
from tests.fakes.effect_server import EffectServer, effect_server


@dataclass
class EffectBench(Bench):
    """A home whose bot acts on a service for each message `act N`. A feature that stands before effects (approvals)
    derives its bench from this one: its own `CHILD`, its own messages, the same `effect_faults`."""

    CHILD: ClassVar[str] = "tests.e2e.effect_child:run"
    service: EffectServer = field(default_factory=EffectServer)

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.home / "service").write_text(self.service.address)

    def start(self, point: str = "", broken: str = "") -> tuple[forked.Child, BinaryIO]:
        """See `Bench.start`. A point `service-KIND:before` or `:after` lets the service kill the bot."""
        at_service = point.startswith("service-")
        self.service.kill_at = point.removeprefix("service-") if at_service else ""
        child, given = super().start("" if at_service else point, broken)
        self.service.victim = child.pid
        return child, given

    def run(self, messages: Sequence[str], point: str = "", broken: str = "") -> int:
        """See `Bench.run`. Once it has ended, the process is nobody's victim."""
        try:
            return super().run(messages, point, broken)
        finally:
            self.service.victim = 0

    def faults(self, messages: Sequence[str]) -> list[str]:
        """See `Bench.faults`; and what happened too often, or did not."""
        return [*super().faults(messages), *self.effect_faults(messages)]

    def effect_faults(self, messages: Sequence[str]) -> list[str]:
        """Effects with a key or a probe that did not happen once, and any that happened more often."""
        given_up, found = self.given_up(), list[str]()
        for message in messages:
            for kind in ("key", "probe", "never"):
                count = self.service.done[kind, message]
                least = 0 if kind == "never" or message in given_up or not message.startswith("act") else 1
                if not least <= count <= 1:
                    found.append(f"{message}: {kind} happened {count} times")
        return found


@contextmanager
def acting_bench(home: Path, features: str = "") -> Iterator[EffectBench]:
    """A bench with its service, for the block."""
    with effect_server() as service:
        yield EffectBench(home, features, service=service)
