"""A bot whose strategy is `summary`, put together from its real parts, and a model that writes summaries by a rule."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from msgspec import structs

from bubbot.app.guard import guard_strategy
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.feature import Feature
from bubbot.features.strategies.feature import StrategiesFeature
from bubbot.features.strategies.settings import ContextSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, ModelTraits, TextDelta, Usage
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ContextPolicy
from bubbot.runtime.context.strategy import ContextStrategies, ContextStrategy
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.store import TapeStore
from tests.doubles import SteppingClock
from tests.kernels import make_kernel
from tests.long_talk import RuleModel, TalkCase
from tests.turns import Bench, Options, no_lessons, running

SUMMARY_PROMPT = "You write the summary of a chat."
NO_PACKAGES: Mapping[str, ContextStrategy] = MappingProxyType({})
QUOTED = re.compile(r"^#(\d+) [^\n]*, message(?: \[[^\n]*\])?:\n((?:    [^\n]*\n?)+)", re.MULTILINE)
"""A quoted message: its id and its words."""


def is_summary(request: ModelRequest) -> bool:
    """True if the request asks for a summary."""
    return request.system.startswith(SUMMARY_PROMPT)


def quoted_messages(request: ModelRequest) -> list[tuple[int, str]]:
    """The messages that a request for a summary shows."""
    return [(int(number), words.strip()) for number, words in QUOTED.findall(str(request.messages[0]["content"]))]


def summary_so_far(request: ModelRequest) -> Mapping[str, Any]:
    """The summary that it shows."""
    text = str(request.messages[0]["content"])
    if not text.startswith("The summary so far"):
        return {}
    found = json.loads(text.split("\n", 2)[1])
    assert isinstance(found, dict)
    return found


def max_characters(request: ModelRequest) -> int:
    """How long the summary may be."""
    found = re.search(r"(\d+) characters at most", request.system)
    assert found
    return int(found[1])


def cite_all(request: ModelRequest) -> str:
    """Write the summary that cites messages with their first words, and carries over what it was; the newest that fit."""
    before = summary_so_far(request).get("summary", "")
    items = [f"{words[:24].strip()} (#{number})" for number, words in quoted_messages(request)]
    items = [*(before.split("; ") if before else []), *items]
    while len("; ".join(items)) > max_characters(request) - 100:
        items.pop(0)
    ids = [int(number) for number in re.findall(r"\(#(\d+)\)", "; ".join(items))]
    return json.dumps({"phase": "talk", "summary": "; ".join(items), "next_steps": ["go on"], "source_ids": ids})


class SummarisingModel(ScriptedModel):
    """Answers `ok`, or what `answer` makes of a request; `write` writes its summaries: text, or an error."""

    def __init__(
        self,
        write: Callable[[ModelRequest], str | Exception] = cite_all,
        *,
        size: int | None = 4_000,
        answer: Callable[[ModelRequest], ModelReply] | None = None,
    ) -> None:
        super().__init__(traits=ModelTraits(context_tokens=size))
        self._write = write
        self._answer = answer

    @property
    def summary_requests(self) -> list[ModelRequest]:
        """The requests for summaries."""
        return [request for request in self.requests if is_summary(request)]

    @property
    def talk(self) -> list[ModelRequest]:
        """The other requests."""
        return [request for request in self.requests if not is_summary(request)]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self.requests.append(request)
        usage = Usage(len(request.as_bytes()) // 3, 20)
        if not is_summary(request):
            reply = self._answer(request) if self._answer else ModelReply("ok", usage=usage)
            if reply.text:
                yield TextDelta(reply.text)
            yield reply
            return
        written = self._write(request)
        if isinstance(written, Exception):
            raise written
        yield TextDelta(written)
        yield ModelReply(written, usage=usage)


class SummaryParts:
    """The feature, and the gate of the bench that it accepts through once there is one."""

    def __init__(self, settings: ContextSettings | None = None) -> None:
        self.bench: Bench | None = None
        self.accepted: list[str] = []
        self._kernel = make_kernel(accept=self.accept)
        self._settings = settings or ContextSettings(selector="summary")

    async def accept(self, inbound: Inbound, extra: Mapping[str, Sequence[TapeEntry]]) -> bool:
        """See `Kernel.accept`."""
        assert self.bench is not None
        self.accepted.append(inbound.external_id)
        return await self.bench.gate.accept(inbound, extra, is_own=True) is not None

    def join(self, bench: Bench) -> None:
        """Accept through this bench."""
        self.bench = bench

    def strategies(self) -> ContextStrategies:
        """The strategies of the bench."""
        built = self._build()
        return OWN_STRATEGIES.replace_own(built.retrieval).replace_own(built.summary)

    def _build(self) -> StrategiesFeature:
        return StrategiesFeature(
            self._kernel,
            self._settings,
            find_model=_find_model,
            strategies=OWN_STRATEGIES,
            lessons=no_lessons(),
            find_price=lambda _: None,
        )

    def features(self) -> list[Feature]:
        """The features of the bench."""
        made = self._build().feature()
        tools = [tool for tool in made.tools if tool.name != "session.strategy"]  # the bench has it
        return [replace(made, tools=tools)]


async def _find_model(turn: Turn) -> Model:
    return await turn.runner.find_model(turn)


@asynccontextmanager
async def summarising(
    store: TapeStore,
    model: Model,
    settings: ContextSettings | None = None,
    *,
    life: str = "first",
    selector: str = "summary",
    further: Sequence[Feature] = (),
    packages: Mapping[str, ContextStrategy] = NO_PACKAGES,
    policy: ContextPolicy | None = None,
    **options: Any,
) -> AsyncIterator[Bench]:
    """A bot whose strategy is `summary`, with strategies of packages besides, as they are loaded."""
    parts = SummaryParts(settings)
    strategies = parts.strategies().extend([*packages], lambda name: guard_strategy(packages[name]))
    policy = structs.replace(
        policy or ContextPolicy(), selector=selector, strategies=strategies, handoff_selector="summary"
    )
    made = Options(compose=policy, features=[*parts.features(), *further], clock=SteppingClock(), **options)
    async with running(store, model, made, life=life) as bench:
        parts.join(bench)
        yield bench


async def summaries(bench: Bench) -> list[TapeEntry]:
    """The anchors with summaries."""
    return [entry for entry in await bench.entries() if entry.name == "auto_handoff/summary" and entry.kind == "anchor"]


def state_of(anchor: TapeEntry) -> JsonObject:
    """What an anchor hands over."""
    state = anchor.payload["state"]
    assert isinstance(state, Mapping)
    return state


class SummaryRuleModel(RuleModel):
    """Writes summaries by a rule: of each sentence with a number it keeps the long words without the number, by entry."""

    def is_part_of_talk(self, request: ModelRequest) -> bool:
        """See `RuleModel.is_part_of_talk`."""
        return not is_summary(request)

    def answer(self, request: ModelRequest) -> ModelReply:
        """See `RuleModel.answer`."""
        return ModelReply(self._summarise(request)) if is_summary(request) else super().answer(request)

    def _summarise(self, request: ModelRequest) -> str:
        before = summary_so_far(request).get("summary", "")
        lines = [line for line in before.split("\n") if line.startswith("#")]
        newest = 0
        for number, words in quoted_messages(request):
            newest = number
            for sentence in re.split(r"[.?!]\s", words):
                if re.search(r"\b\d{3,}\b", sentence) and "?" not in sentence and not sentence.startswith("It is"):
                    kept = [word for word in re.findall(r"\w+", sentence) if len(word) > 3 and not word.isdigit()]
                    lines.append(f"#{number} {' '.join(kept)}")
        text = "\n".join(lines) or f"Small talk (#{newest})."
        ids = [int(number) for number in re.findall(r"#(\d+)", text)]
        return json.dumps({"summary": text[: max_characters(request)], "source_ids": ids})


def summary_case(least: float, size: int = 8_000) -> TalkCase:
    """The strategy in a long talk."""
    parts = SummaryParts()
    return TalkCase(
        "summary",
        least=least,
        features=parts.features,
        strategies=parts.strategies(),
        make_model=lambda: SummaryRuleModel(size),
        on_running=parts.join,
    )
