"""A long talk with a model of a tiny window, by a fixed rule: what each context strategy keeps within its reach.

People plant facts early ("By the way, my copper locker code is 4711.") and ask for them late. Between them they talk,
look things up whose results are long, and change the memory. The model is never told what is planted: it answers only
from msgspec import structs
from its request. Every request is checked as it comes; the breaks of the prefix are explained by the tape afterwards.

A strategy of a feature joins the talk with a `TalkCase`; if its model has to do more than answer, with a subclass of
`RuleModel`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from msgspec import structs

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.arguments.fields import Args
from bubbot.errors import ModelOverflow
from bubbot.feature import Around, Feature
from bubbot.features.strategies.meaning import MeaningSearch
from bubbot.features.strategies.recall import make_retrieval
from bubbot.middleware import CallNext
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ModelTraits, TextDelta, ToolCall, Usage
from bubbot.ports.passages import PassageIndex
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.compose import ContextPolicy
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.tool import READS_WORLD, tool
from tests.doubles import SteppingClock
from tests.provider_rules import alternation_faults, faults
from tests.turns import Bench, Options, running

WINDOW_TOKENS = 6_000
"""The size of the model's context. The prompt and the schemas of the tools take 2,400 of it, and the answer a fourth, so
that the talk has less than 2,000."""
BYTES_PER_TOKEN = 3
"""How the model counts."""
UNKNOWN = "I don't know."
FACT = re.compile(r"my (?P<subject>\w+ \w+) code is (?P<value>\d{4})\b")
PROBE = re.compile(r"What is my (?P<subject>\w+ \w+) code\?")
CITED = re.compile(r"#(\d+)([^#]*)")
"""An entry that a hint cites, and the words beside it."""
RESULT_CHARS = 1_500
"""Characters of a long result."""
SYLLABLES = ("ba", "dor", "fi", "gul", "ha", "kem", "lo", "mir", "nu", "pas", "ro", "sul", "ta", "vor", "wi", "zan")
MEANINGS = (
    ("The automobile is parked on level {}.", "Where did I leave my car?"),
    ("My physician has the extension {}.", "How do I reach the doctor by phone?"),
    ("The infant weighs {} grams.", "How heavy was our baby?"),
    ("We pay {} euros of rent for the flat.", "What does my apartment cost?"),
    ("The film starts at {}.", "When does the movie begin?"),
    ("The locomotive leaves from track {}.", "From which platform does my train depart?"),
    ("I owe my sibling {} dollars.", "How much money must I give back to my brother?"),
    ("The novel lies open at page {}.", "How far did I read in my book?"),
    ("Set the oven to {} units.", "How hot must my stove be?"),
    ("The laptop has a serial that ends in {}.", "What are the last digits of my computer?"),
    ("The tickets for the flight cost {}.", "How expensive was our plane?"),
    ("Dinner is for {} guests.", "How many people come to our meal?"),
)
"""Facts, and questions about them that share only their meaning. The model knows the language, so it knows which sentence
answers which question, and takes the number from its request."""


@dataclass(frozen=True)
class Probe:
    """A question about a fact. `shares_words`: the fact says it in the same words."""

    question: str
    value: str
    shares_words: bool = True


@dataclass(frozen=True)
class Script:
    """What people say, in order; `probes` by the number of their turn."""

    lines: Sequence[str]
    probes: Mapping[int, Probe]


def make_script(turns: int, *, facts: int, seed: int = 18) -> Script:
    """Plant the facts within the first tenth of the turns, and ask for them within the last fifth."""
    random = Random(seed)
    nouns = [_word(random) for _ in range(40)]
    words = [_word(random) for _ in range(400)]
    lines = [_filler(random, turn, words, nouns) for turn in range(turns)]
    values = [str(value) for value in random.sample(range(1_000, 10_000), facts + len(MEANINGS))]
    subjects = [f"{_word(random)}{place % 7}x {random.choice(nouns)}" for place in range(facts)]
    planted = [f"By the way, my {subject} code is {{}}. {_sentence(random, words)}" for subject in subjects]
    meanings = MEANINGS[: turns // 10 - 1 - facts]
    planted += [fact for fact, _ in meanings]
    early = sorted(random.sample(range(1, turns // 10), len(planted)))
    values = values[: len(planted)]
    for turn, fact, value in zip(early, planted, values, strict=True):
        lines[turn] = fact.format(value)
    asked = [Probe(f"What is my {subject} code?", value) for subject, value in zip(subjects, values, strict=False)]
    asked += [
        Probe(question, value, shares_words=False)
        for (_, question), value in zip(meanings, values[facts:], strict=True)
    ]
    late = sorted(random.sample(range(turns - turns // 5, turns), len(asked)))
    probes = dict(zip(late, asked, strict=True))
    for turn, probe in probes.items():
        lines[turn] = probe.question
    return Script(lines, probes)


def _filler(random: Random, turn: int, words: Sequence[str], nouns: Sequence[str]) -> str:
    if turn % 97 == 50:
        return f"Keep for good: {_sentence(random, words)}"
    if turn % 15 == 7:
        return f"Please look up the {random.choice(nouns)}."
    return f"Today I saw the {random.choice(nouns)}. {_sentence(random, words)} {_sentence(random, words)}"


def _word(random: Random) -> str:
    return "".join(random.choice(SYLLABLES) for _ in range(random.randint(2, 4)))


def _sentence(random: Random, words: Sequence[str]) -> str:
    return f"{' '.join(random.choice(words) for _ in range(random.randint(5, 12)))}."


class LookUpArgs(Args, frozen=True):
    """What to look up."""

    subject: str


@tool("notes.look", effect=READS_WORLD)
async def look_up(turn: Turn, args: LookUpArgs) -> str:
    """Look something up."""
    random = Random(args.subject)
    words = [_word(random) for _ in range(50)]
    text = f"About {args.subject}: "
    while len(text) < RESULT_CHARS:
        text += f"{_sentence(random, words)} "
    return text


class RuleModel:
    """Answers by a fixed rule, and only from its request; checks every request that it gets.

    Attributes:
        request_count: the requests of the talk.
        overflows: those that were longer than its context.
        faults: what a strict provider would have refused.
        breaks: the numbers of the requests that do not extend the one before, and in what.
        bytes_read: of all requests.
        own_bytes: of those that are no part of the talk.
    """

    def __init__(self, context_tokens: int = WINDOW_TOKENS) -> None:
        self._traits = ModelTraits(context_tokens=context_tokens)
        self._last: ModelRequest | None = None
        self.request_count = 0
        self.overflows = 0
        self.faults: list[str] = []
        self.breaks: dict[int, str] = {}
        self.bytes_read = 0
        self.own_bytes = 0

    @property
    def name(self) -> str:
        """See `Model.name`."""
        return "rule"

    @property
    def traits(self) -> ModelTraits:
        """See `Model.traits`."""
        return self._traits

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        await asyncio.sleep(0)
        size = len(request.as_bytes())
        self.bytes_read += size
        if self.is_part_of_talk(request):
            self._check(request)
        else:
            self.own_bytes += size
        tokens = size // BYTES_PER_TOKEN
        if tokens > (self._traits.context_tokens or 0):
            self.overflows += 1
            raise ModelOverflow(f"{tokens} tokens are too many")
        self.faults += [f"request {self.request_count}: {fault}" for fault in faults(request.messages)]
        self.faults += [f"request {self.request_count}: {fault}" for fault in alternation_faults(request.messages)]
        reply = self.answer(request)
        if reply.text:
            yield TextDelta(reply.text)
        yield structs.replace(reply, usage=Usage(tokens, len(reply.text) // BYTES_PER_TOKEN), model=self.name)

    def _check(self, request: ModelRequest) -> None:
        last, self._last = self._last, request
        if last is not None:
            if (request.system, request.tools) != (last.system, last.tools):
                self.breaks[self.request_count] = "prompt"
            if request.texts[: len(last.texts)] != last.texts:
                self.breaks[self.request_count] = "messages"
        self.request_count += 1

    def is_part_of_talk(self, request: ModelRequest) -> bool:
        """Return false for a request of a feature for itself, such as one for a summary."""
        return True

    def answer(self, request: ModelRequest) -> ModelReply:
        """Answer by the rule: look for a fact, open what a hint cites with words of the question, or do not know."""
        prompt = next((str(item["content"]) for item in reversed(request.messages) if item["role"] == "user"), "")
        if meaning := find_meaning(prompt):
            return ModelReply(find_number(request, meaning) or UNKNOWN)
        probes = PROBE.findall(prompt)
        is_result = request.messages[-1]["role"] == "tool"
        if probes:
            subject = probes[-1]
            value = find_value(request, subject)
            if value or is_result or not (call := self.search(request, subject)):
                return ModelReply(f"It is {value}." if value else UNKNOWN)
            return ModelReply("", (call,), "tool_calls")
        if not is_result and (found := re.search(r"look up the (\w+)\.", prompt)):
            return ModelReply("", (self.call("notes_look", subject=found[1]),), "tool_calls")
        if not is_result and (found := re.search(r"Keep for good: (.+)", prompt)):
            return ModelReply("", (self.call("memory_save", content=found[1]),), "tool_calls")
        return ModelReply(f"Noted: {prompt[-40:]}")

    def search(self, request: ModelRequest, subject: str) -> ToolCall | None:
        """Open the entries that the request cites beside words of the subject, if there is a tool for it."""
        if "tape_read" not in [spec.name for spec in request.tools]:
            return None
        wanted = set(subject.split())
        texts = [str(message["content"]) for message in request.messages]
        cited = [
            (len(wanted & set(re.findall(r"\w+", words))), number)
            for text in texts
            for number, words in CITED.findall(text)
        ]
        best = sorted((entry for entry in cited if entry[0]), reverse=True)[:3]
        return self.call("tape_read", ids=",".join(number for _, number in best)) if best else None

    def call(self, name: str, **arguments: str) -> ToolCall:
        """Make a call."""
        return ToolCall(f"call_{self.request_count}", name, json.dumps(arguments))

    async def aclose(self) -> None:
        """See `Model.aclose`."""


def find_meaning(prompt: str) -> str:
    """Find the fact that answers the question at the end of a prompt; empty if that asks none of them."""
    return next((fact for fact, question in MEANINGS if prompt.endswith(question)), "")


def find_number(request: ModelRequest, fact: str) -> str:
    """Find what a request says of a fact; empty if it says nothing."""
    pattern = re.compile(re.escape(fact).replace(re.escape("{}"), r"(\d{4})"))
    found = [match[1] for message in request.messages for match in pattern.finditer(str(message["content"]))]
    return f"It is {found[-1]}." if found else ""


def find_value(request: ModelRequest, subject: str) -> str:
    """Find the newest fact in the request that says this subject; empty if there is none."""
    for message in reversed(request.messages):
        for found in reversed([*FACT.finditer(json.dumps(message["content"], ensure_ascii=False))]):
            if found["subject"] == subject:
                return found["value"]
    return ""


RECALLING = OWN_STRATEGIES.replace_own(make_retrieval(lambda _: 250))
"""The strategies of a bot whose `retrieval` recalls evidence by its words."""


def recalling_by_meaning(index: PassageIndex) -> tuple[ContextStrategies, Callable[[], Sequence[Feature]]]:
    """The strategies of a bot that recalls by meaning, too, and the feature that lets the index follow at once."""
    meaning = MeaningSearch(index, _open_nothing, is_on=lambda: True)

    async def follow(turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        await meaning.follow(turn.tape)  # how far a background gets is not what is tested
        return await call_next(turn)

    strategies = OWN_STRATEGIES.replace_own(make_retrieval(lambda _: 250, meaning.find))
    return strategies, lambda: [Feature(name="follow", around=Around(turn=(follow,)))]


def _open_nothing(name: str) -> TapeService:
    raise AssertionError(f"{name} is not followed in the background")


@dataclass(frozen=True)
class TalkCase:
    """A strategy in a long talk.

    Attributes:
        selector: how it is written.
        least: the share of the probes, of those that share words with their fact, that have to be answered.
        most: the share that may be answered.
        overflows: its requests may be longer than the window.
        features: further features of the bot, such as the one that has its tools.
        strategies: those of the bot.
        make_model: makes the model.
        on_running: called with the bot once it runs.
    """

    selector: str
    least: float
    most: float = 1.0
    overflows: bool = False
    features: Callable[[], Sequence[Feature]] = tuple
    strategies: ContextStrategies = OWN_STRATEGIES
    make_model: Callable[[], RuleModel] = RuleModel
    on_running: Callable[[Bench], None] = lambda _: None


@dataclass
class TalkReport:
    """What a talk came to.

    Attributes:
        turns: how many.
        requests: to the model, those of the talk.
        overflows: requests that were too long.
        answered: probes that share words, answered; `asked` of them.
        meant: probes that share only the meaning, answered; `meant_asked` of them.
        breaks: of the prefix, by what explains them.
        unexplained: the requests that break it without a reason.
        faults: what a strict provider would have refused.
        bytes_read: of all requests.
        own_bytes: of those that are no part of the talk, such as requests for summaries.
    """

    turns: int
    requests: int = 0
    overflows: int = 0
    answered: int = 0
    asked: int = 0
    meant: int = 0
    meant_asked: int = 0
    breaks: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    bytes_read: int = 0
    own_bytes: int = 0

    @property
    def share(self) -> float:
        """The share of the probes with shared words that were answered."""
        return self.answered / self.asked


async def long_talk(store: TapeStore, case: TalkCase, turns: int, *, facts: int) -> TalkReport:
    """Let the talk run, and report."""
    script, model, report = make_script(turns, facts=facts), case.make_model(), TalkReport(turns)
    options = Options(
        tools=[look_up],
        clock=SteppingClock(step=timedelta(milliseconds=10)),
        compose=ContextPolicy(case.selector, strategies=case.strategies),
        features=case.features(),
    )
    async with running(store, model, options) as bench:
        case.on_running(bench)
        for turn, line in enumerate(script.lines):
            options.clock.advance(timedelta(minutes=7))  # type: ignore[union-attr] # it is set above
            result = await bench.say(line)
            if probe := script.probes.get(turn):
                is_right = probe.value in result.text
                if probe.shares_words:
                    report.asked, report.answered = report.asked + 1, report.answered + is_right
                else:
                    report.meant_asked, report.meant = report.meant_asked + 1, report.meant + is_right
        await bench.quiet()
        _explain(report, model, await bench.entries())
    report.requests, report.overflows = model.request_count, model.overflows
    report.faults, report.bytes_read, report.own_bytes = model.faults, model.bytes_read, model.own_bytes
    return report


def _explain(report: TalkReport, model: RuleModel, entries: Sequence[TapeEntry]) -> None:
    """Explain each break by what the tape says between the two steps. Steps with a purpose are no part of the talk."""
    number, last_day, reasons = 0, "", Counter[str]()
    for entry in entries:
        if entry.name == "context/cut":
            reasons["cut"] += 1
        elif entry.name == "memory/seal":
            reasons["memory"] += 1
        elif entry.opens_window:
            reasons["window"] += 1
        elif entry.kind == Kind.EVENT and entry.name == "loop.step" and not entry.payload["data"].get("purpose"):
            day = (entry.date or "")[:10]
            if day != last_day:
                reasons["day"] += 1
            part = model.breaks.get(number)
            allowed = ("cut", "window") if part == "messages" else ("day", "memory")
            if part is not None:
                reason = next((reason for reason in allowed if reasons[reason]), None)
                if reason is None:
                    report.unexplained.append(f"request {number} ({part}), entry {entry.id}")
                else:
                    report.breaks[reason] += 1
            number, last_day, reasons = number + 1, day, Counter()
    if number != model.request_count:
        report.unexplained.append(f"{number} steps on the tape, {model.request_count} requests")
