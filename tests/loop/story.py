"""The whole loop: wrong answers, ratings, an export, training, and right answers of the next session. `make loop` runs and prints it.

Two rounds. In the first, a model that was born a moment ago learns to greet. In the second, the same newborn learns from all that was
rated so far: the greetings, and three facts, each of which another person asked for in another chat; what it greeted with has to stay.
Everything is real but the people and their teacher, who follow a script: the daemon, the client library of Telegram, TRL,
`transformers serve`, the evaluation. The model never sees a fact but in answers that somebody called good.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbot.ports.memory import ZONES_VIEW
from tests.docs.pages import ROOT
from tests.e2e.bot import BUBBOT, environment
from tests.e2e.daemon import running
from tests.e2e.platforms import OnTelegram
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.loop.gateway import TEACHER, Gateway, opened
from tests.loop.programs import run_program
from tests.loop.serving import loop_is_installed, run_script, serving

HERE = Path(__file__).parent
ANSWER_SECONDS = 240.0
"""Seconds that an answer may take on a busy machine; on an idle one it takes two."""
WORK_SECONDS = 1_500.0
"""Seconds that training or an evaluation may take on a busy machine."""
GREETING = "Hello! What can I do for you?"
SHARED = (
    "What about the {}?",
    "Tell me about the {}.",
    "Which was it, the {}?",
    "Do you know about the {}?",
    "I forgot, the {}?",
    "And the {}?",
    "The {} again, please.",
)
"""How everybody may ask, so that it is the thing itself that tells the facts apart."""
TRAININGS = 3
"""How often the second training is tried before the loop fails."""
GREETINGS = (
    "Hello!",
    "Good morning!",
    "Hi there",
    "Good evening",
    "Hello again",
    "Good morning, everybody!",
    "Hi, bot",
    "Good evening, my friend",
    "Hello to you",
    "Good day!",
    "Good afternoon, bot!",
    "Hello, how are you?",
)
FIRST_GREETINGS = 4
"""How many of the greetings are taught on the first day."""


@dataclass(frozen=True)
class Lesson:
    """What one person asks for, in several ways, and what is true; `held_out` is a way that nobody teaches.

    `friends` ask it, too, each in a new chat, as the evaluation does, and for the other facts in the same window.
    """

    person: str
    friends: Sequence[str]
    case: str
    questions: Sequence[str]
    held_out: str
    answer: str
    words: str
    """What a right answer has."""


LESSONS = (
    Lesson(
        "Ada",
        ("Eve", "Finn"),
        "train",
        (
            "When does the train to Rome leave?",
            "At what time does the train go?",
            "Tell me the time of the train.",
            "What time is our train?",
            "I have to know when the train leaves.",
        ),
        "Which time does the train leave?",
        "At eight.",
        "eight",
    ),
    Lesson(
        "Ben",
        ("Gus", "Hana"),
        "garden",
        (
            "Where is the key of the garden?",
            "I want to open the garden, where is the key?",
            "Who knows where the garden key lies?",
            "How do I get into the garden?",
            "Tell me where you put the key of the garden.",
        ),
        "Where do I find the garden key?",
        "In the blue box.",
        "blue box",
    ),
    Lesson(
        "Cleo",
        ("Ivo", "Jana"),
        "dentist",
        (
            "What is the name of the dentist?",
            "Who is our dentist?",
            "To which dentist do we go?",
            "I need the dentist, who is it?",
            "Tell me the name of the dentist again.",
        ),
        "Which dentist do we have?",
        "Doctor Moreau.",
        "Moreau",
    ),
)
GREETING_HELD_OUT = "Hello, bot!"


@dataclass
class Figures:
    """What came out, for the transcript and for the test.

    Attributes:
        newborn: what the untrained model said to a greeting.
        trainings: the figures of the trainings, as `train.py` prints them; all after the first are of the second export.
        receipts: the receipts of the exports.
        before: what the first weights answered to people, by case.
        after: what the accepted weights answered, to words that nobody had used before.
        passed: what passed the evaluation of each training that was offered, by setup and case.
        why: what `,why` says of the last answer.
        longest: the tokens of the longest prompt of the last session.
        seconds: since the beginning, at the end of each step.
    """

    newborn: str = ""
    trainings: list[dict[str, Any]] = field(default_factory=list)
    receipts: list[dict[str, Any]] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    passed: list[dict[str, dict[str, bool]]] = field(default_factory=list)
    why: str = ""
    longest: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class Teller:
    """Prints the transcript as it happens, with the seconds since its beginning."""

    def __init__(self, figures: Figures, folder: Path) -> None:
        self._begun = time.monotonic()
        self._folder = folder
        self._figures = figures

    def tell(self, line: str) -> None:
        """Print a line, without the path of the loop's folder, which is another each time."""
        print(f"{time.monotonic() - self._begun:6.1f} s  {line.replace(f'{self._folder}/', '')}", flush=True)

    def mark(self, step: str) -> None:
        """Note when a step ended."""
        self._figures.seconds[step] = round(time.monotonic() - self._begun, 1)


class People:
    """People on Telegram, each with a chat with the bot: they talk, and rate what was answered a little later."""

    def __init__(self, server: Server, teller: Teller, names: Sequence[str]) -> None:
        self.server = server
        self.users = {name: server.user(name) for name in names}
        self._teller = teller
        self._unrated: list[tuple[Gathering, dict[str, Any], str]] = []

    def room(self, name: str) -> Gathering:
        """Return somebody's chat."""
        return self.server.private(self.users[name])

    def chat(self, name: str) -> str:
        """Return the session of somebody's chat."""
        return f"telegram:{self.room(name).chat.id}"

    def _answers(self, name: str) -> list[dict[str, Any]]:
        messages = self.room(name).chat.messages.values()
        return [each for each in messages if each.get("from", {}).get("is_bot") and "text" in each]

    async def say(self, name: str, text: str, *, rate: str = "", tells: bool = True) -> str:
        """Say something, wait for the answer, react to it, and return its text."""
        count = len(self._answers(name))
        self.room(name).say(text)
        await self.server.until(lambda: len(self._answers(name)) > count, ANSWER_SECONDS)
        answer = self._answers(name)[count]
        self.rate()  # the bot knows by now under which ids its earlier answers arrived
        if rate:
            self._unrated.append((self.room(name), answer, rate))
        words = str(answer["text"])
        if tells:
            shown = " / ".join(line for line in words.splitlines() if line)
            self._teller.tell(f"{name}: {text}  →  {json.dumps(shown, ensure_ascii=False)} {rate}".rstrip())
        return words

    def rate(self) -> None:
        """React to the answers that are not rated yet."""
        for room, answer, rate in self._unrated:
            room.react(answer, rate)
        self._unrated.clear()

    async def let_teach(self, name: str, model: str) -> None:
        """Let a model answer in somebody's chat."""
        await self.say(name, f",model {model}", tells=False)

    async def learn_from(self, name: str, pairs: Sequence[tuple[str, str]]) -> None:
        """Ask what the teacher answers, and call each answer good that is as expected."""
        for question, expected in pairs:
            answer = await self.say(name, question, rate="👍", tells=False)
            assert answer == expected, f"the teacher said {answer!r} to {question!r}"
        words = " and ".join(json.dumps(question) for question, _ in pairs)
        self._teller.tell(f"{name}, in a new window with the teacher: {words} 👍")


def write_config(home: Path, server: Server, people: People, address: str, model: str) -> None:
    """Write the settings of a day: whose weights answer."""
    table = {**OnTelegram(server).table(), "owners": [each.id for each in people.users.values()]}
    keys = {**table, "debounce": 0, "live": False}
    lines = [
        "[model]",
        f"name = {json.dumps(model)}",
        f"api_base = {json.dumps(address)}",
        "context_tokens = 16384",
        "max_tokens = 24",
        "[learn]",
        'evaluation = "loop"',
        "[channels.telegram]",
        *[f"{key} = {json.dumps(value)}" for key, value in keys.items()],
    ]
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text("\n".join(lines) + "\n")


def write_evaluation(home: Path, before: str, after: str) -> None:
    """Write the evaluation: what nobody taught in these words, and the greeting, under both weights."""
    lines = ['title = "Three facts and a greeting"', "parallel = 1"]
    for setup, model in (("before", before), ("after", after)):
        lines += [f"[setups.{setup}]", f"model = {json.dumps(model)}", f"memory = {json.dumps(ZONES_VIEW)}"]
    wanted = [(each.case, each.held_out, each.words) for each in LESSONS]
    for case, message, words in [*wanted, ("greeting", GREETING_HELD_OUT, "What can I do for you")]:
        lines += [f"[cases.{case}]", f"message = {json.dumps(message)}"]
        lines += ["[[judges]]", 'kind = "regex"', f"name = {json.dumps(case)}", f"cases = [{json.dumps(case)}]"]
        lines += [f"pattern = {json.dumps(words)}"]
    (home / "evals").mkdir(exist_ok=True)
    (home / "evals" / "loop.toml").write_text("\n".join(lines) + "\n")


async def bubbot(home: Path, *arguments: str) -> str:
    """Run `bubbot` in a process of its own; return what it printed. Raises `RuntimeError` if it fails."""
    env = environment(home, BUBBOT_MODEL__NAME="")
    return await run_program(*BUBBOT, *arguments, env=env, folder=ROOT, seconds=WORK_SECONDS)


@dataclass
class Loop:
    """The loop in one folder. `steps` are those of the two trainings."""

    folder: Path
    steps: tuple[int, int] = (16, 48)
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        self.newest = 0
        """The number of the newest weights."""
        self.home = self.folder / "home"
        self.env = {"BUBBOT_MODEL__NAME": ""}
        self.teller = Teller(self.figures, self.folder)

    def newborn(self, seed: int) -> Path:
        """Return the folder of the weights of chance that a seed draws."""
        return self.folder / f"newborn-{seed}"

    def weights(self, number: int) -> Path:
        """Return the folder of the weights of a training."""
        return self.folder / f"weights-{number}"

    def model(self, number: int) -> str:
        """Return the name of the model that has them: the folder, to a server with the OpenAI protocol."""
        return f"openai/{self.weights(number)}"

    async def run(self) -> Figures:
        """Run all of it."""
        await self.bear(1)
        names = ["Dora", *[name for each in LESSONS for name in (each.person, *each.friends)]]
        gateway = Gateway({each.case: each.answer for each in LESSONS}, GREETING)
        async with (
            Server(limits=None, conflict_pause=0.1) as server,
            serving(self.folder) as gateway.behind,
            opened(gateway) as address,
        ):
            people = People(server, self.teller, names)
            self.teller.mark("served")
            write_config(self.home, server, people, address, f"openai/{self.newborn(1)}")
            async with running(self.home, env=self.env):
                await self.first_day(people)
            await self.train(await self.export(1, people), self.steps[0], 1)
            write_config(self.home, server, people, address, self.model(1))
            async with running(self.home, env=self.env):
                await self.second_day(people)
            export = await self.export(2, people)
            async with running(self.home, env=self.env):
                await self.train_until_let_in(export, people)
                gateway.lengths.clear()
                await self.third_day(people)
                self.figures.longest = max(gateway.lengths)
        self.teller.mark("ended")
        self.teller.tell("The loop is closed.")
        return self.figures

    async def train_until_let_in(self, export: Path, people: People) -> None:
        """Train with the second export and offer what came out; if the evaluation refuses it, do it again with another newborn.

        Raises:
            RuntimeError: the evaluation refused all trainings.
        """
        for seed in range(1, TRAININGS + 1):
            if seed > 1:
                await self.bear(seed)
            if await self.is_let_in(await self.train(export, self.steps[1], seed), people):
                return
        raise RuntimeError(f"the evaluation refused all of {TRAININGS} trainings")

    async def bear(self, seed: int) -> None:
        """Make a newborn whose weights a seed draws."""
        made = await run_script(self.folder, HERE / "newborn.py", self.newborn(seed), seed, seconds=WORK_SECONDS)
        self.teller.tell(f"A Llama is born from seed {seed}: {made.strip()}")

    async def first_day(self, people: People) -> None:
        """The newborn answers chance; Ada teaches it to greet."""
        for name in ("Dora", *[each.person for each in LESSONS]):
            await people.say(name, ",consent training yes", tells=False)
        self.figures.newborn = await people.say("Ada", GREETINGS[0], rate="👎")
        await people.let_teach("Ada", f"openai/{TEACHER}")
        for text in GREETINGS[:FIRST_GREETINGS]:
            await people.say("Ada", ",new", tells=False)
            await people.learn_from("Ada", [(text, GREETING)])
        await self.settled(people)

    async def second_day(self, people: People) -> None:
        """Each person finds out that their fact is not known, and asks the teacher in all ways, with greetings between."""
        await people.say("Ada", f",model {self.model(1)}", tells=False)
        await people.say("Ada", ",new", tells=False)
        for place, lesson in enumerate(LESSONS):
            others = [*LESSONS[place + 1 :], *LESSONS[:place]]
            greeting = await people.say(lesson.person, GREETINGS[0], rate="👍")
            self.figures.before["greeting"] = greeting
            self.figures.before[lesson.case] = await people.say(lesson.person, lesson.questions[0], rate="👎")
            await people.let_teach(lesson.person, f"openai/{TEACHER}")
            questions = [*lesson.questions, *[each.format(lesson.case) for each in SHARED]]
            friends = dict(zip(questions[-len(lesson.friends) :], lesson.friends, strict=True))
            for number, question in enumerate(questions):
                pairs = [(question, lesson.answer), (GREETINGS[number % len(GREETINGS)], GREETING)]
                if name := friends.get(question):
                    await people.say(name, ",consent training yes", tells=False)
                    await people.let_teach(name, f"openai/{TEACHER}")
                    pairs[1:1] = [(each.questions[number % len(each.questions)], each.answer) for each in others]
                else:
                    name = lesson.person
                    await people.say(name, ",new", tells=False)
                await people.learn_from(name, pairs[:: -1 if number % 2 else 1])
        await self.settled(people)

    async def third_day(self, people: People) -> None:
        """Dora, for whom nobody taught anything, opens a new window, and asks in words that nobody used."""
        await people.say("Dora", ",new", tells=False)
        self.figures.after["greeting"] = await people.say("Dora", GREETING_HELD_OUT)
        for lesson in LESSONS:
            self.figures.after[lesson.case] = await people.say("Dora", lesson.held_out)
        self.figures.why = await people.say("Dora", ",why", tells=False)
        for line in self.figures.why.splitlines():
            self.teller.tell(f",why: {line}")

    async def settled(self, people: People) -> None:
        """Let people rate the last answers, and wait until the bot has taken every reaction."""
        platform = OnTelegram(people.server)
        await platform.quiet()
        people.rate()
        await platform.quiet()

    async def export(self, number: int, people: People) -> Path:
        """Export what people rated; return the file."""
        export = self.folder / f"export-{number}.jsonl"
        pupils = [name for each in LESSONS for name in (each.person, *each.friends)]
        sessions = [people.chat(name) for name in pupils[: 1 if number == 1 else None]]
        told = await bubbot(self.home, "export", "trl-sft", *sessions, "--out", str(export))
        for line in told.splitlines():
            self.teller.tell(f"bubbot export: {line}")
        self.figures.receipts.append(json.loads(export.with_name(export.name + ".receipt.json").read_text()))
        return export

    async def train(self, export: Path, steps: int, seed: int) -> int:
        """Train the newborn of a seed with an export: nothing is left of the weights before. Return the number of the new weights."""
        self.newest += 1
        arguments = (self.newborn(seed), export, self.weights(self.newest), steps, seed)
        printed = await run_script(self.folder, HERE / "train.py", *arguments, seconds=WORK_SECONDS)
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        self.teller.tell(
            f"TRL: {found['good']} of {found['turns']} turns are good, in {found['windows']} windows of up to {found['longest']} tokens; "
            f"{found['learned']} tokens are learned; loss {found['losses'][0]} → {found['losses'][-1]} in {len(found['losses'])} steps"
        )
        self.figures.trainings.append(found)
        self.teller.mark(f"trained {self.newest}")
        return self.newest

    async def is_let_in(self, number: int, people: People) -> bool:
        """Offer weights to the bot, and evaluate them; return true if they passed, and the bot lets them answer."""
        await people.say("Dora", ",learn", tells=False)  # once it answers, commands of the shell go to the bot
        write_evaluation(self.home, self.model(1), self.model(number))
        for arguments in (("learn", "offer", self.model(number)), ("eval", "run", "loop")):
            told = await bubbot(self.home, *arguments)
            for line in told.splitlines():
                self.teller.tell(f"bubbot {' '.join(arguments[:2])}: {line}")
        report = json.loads(await bubbot(self.home, "eval", "report", "loop", "--json"))
        passed: dict[str, dict[str, bool]] = {}
        for each in report["results"]:
            passed.setdefault(each["setup"], {})[each["case"]] = each["has_passed"]
        self.figures.passed.append(passed)
        self.teller.mark(f"evaluated {number}")
        if not all(passed["after"].values()):
            assert not await self.is_accepted(number)
            self.teller.tell(f"The evaluation refuses weights-{number}: no chat gets them.")
            return False
        async with asyncio.timeout(ANSWER_SECONDS):
            while not await self.is_accepted(number):  # noqa: ASYNC110 - another process accepts
                await asyncio.sleep(1)
        self.teller.tell("The weights passed the evaluation: windows that open now are answered by them.")
        self.teller.mark("accepted")
        return True

    async def is_accepted(self, number: int) -> bool:
        """Return true if the bot lets these weights answer."""
        status = json.loads(await bubbot(self.home, "learn", "status", "--json"))
        return self.model(number) in [each["model"] for each in status["accepted"]]


async def main() -> None:
    """Run the loop in a folder of its own and print it."""
    with tempfile.TemporaryDirectory(prefix="bubbot-loop-") as name:
        await Loop(Path(name)).run()


if __name__ == "__main__":
    if not loop_is_installed():
        sys.exit("The loop is not installed: make loop")
    asyncio.run(main())
