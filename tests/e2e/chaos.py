"""Many `bubbot run` on one PostgreSQL server, and the people, tools and model around them, which nothing of it can touch.

Each worker has a home of its own and is a process that is killed, frozen and started again; the server restarts as after a power
cut. People write on the tests' Telegram and Discord servers, press the buttons of cards, and spend budgets from several
chats at once. What came of it is judged by `chaos_judge`.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bubbot.settings.sections import StoreSettings
from tests.e2e import acting_feature
from tests.e2e.chaos_provider import CALL_TOKENS, ChaosProvider, chaos_provider
from tests.e2e.daemon import Daemon, started
from tests.e2e.hurried import BOT
from tests.e2e.platforms import OnDiscord, OnTelegram, Platform
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.botapi.world import User
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.effect_server import EffectServer, effect_server
from tests.postgres_server import OwnServer, copied_database, make_template, own_server

LEASE_SECONDS = 3
START_SECONDS = 120.0
"""Seconds that a worker may take to run, or to answer its first messages."""
STARTED = "action=run.started"
UNLIMITED: Mapping[str, Any] = {"messages_per_minute": 0, "messages_per_hour": 0, "bytes_per_day": 0}
QUICK_RECOVERY = "recovery_init_sync_method=syncfs"
"""Before it recovers, the server syncs its files one by one, which takes seconds on a busy disk."""
LIMIT_TOKENS = 4 * CALL_TOKENS
"""What a spender may use in a day."""
GROUPS = 3
"""Groups in which a spender also speaks."""
PRESS_AGAIN_SECONDS = 5.0
"""People press again if a card is unchanged by then."""


@dataclass
class Seat:
    """A chat, and what its person says there.

    Attributes:
        platform: where it is.
        chat: its id, as the bot names it.
        room: the platform's chat.
        speak: says something to the bot.
        said: what was said, in order.
        pressed: when which card was pressed last, by its message.
    """

    platform: Platform
    chat: str
    room: Any
    speak: Callable[[str], object]
    said: list[str] = field(default_factory=list)
    pressed: dict[int, float] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Let its person say something."""
        self.said.append(text)
        self.speak(text)

    def texts(self) -> list[str]:
        """What the bot has said here, as it stands now, oldest first."""
        return [text for text in self.room.texts(self.platform.server.bot.user) if text]


@dataclass
class Worker:
    """A home and its process.

    Attributes:
        target: its program.
        codes: exit codes of processes that ended by themselves.
    """

    home: Path
    env: Mapping[str, str]
    target: str = BOT
    daemon: Daemon | None = None
    codes: list[int] = field(default_factory=list)

    @property
    def log(self) -> str:
        """What all its processes logged."""
        errors = self.home / "errors"
        return errors.read_text(errors="replace") if errors.exists() else ""

    async def start(self) -> None:
        """Start a process."""
        self.daemon = await started(self.home, target=self.target, env=self.env)

    async def run(self) -> None:
        """Start a process, and wait until it runs."""
        before = self.log.count(STARTED)
        await self.start()
        async with asyncio.timeout(START_SECONDS):
            while self.log.count(STARTED) == before:
                assert not self.has_ended(), self.log[-3000:]
                await asyncio.sleep(0.05)

    def has_ended(self) -> bool:
        """Return true if it runs no more, though nobody ended it."""
        return self.daemon is not None and self.daemon.process.returncode is not None

    async def kill(self) -> None:
        """End it at once."""
        daemon, self.daemon = self.daemon, None  # at once: another disturbance may meet it
        if daemon is not None:
            await daemon.kill()

    def send(self, number: int) -> None:
        """Send a signal to it."""
        if self.daemon is not None:
            self.daemon.process.send_signal(number)

    async def end(self) -> None:
        """End it in order, and note the exit code; one that does not end is killed."""
        daemon, self.daemon = self.daemon, None
        if daemon is not None:
            daemon.process.send_signal(signal.SIGCONT)
            daemon.process.terminate()
            try:
                async with asyncio.timeout(START_SECONDS):
                    self.codes.append(await daemon.process.ended())
            except TimeoutError:
                await daemon.kill()
                self.codes.append(-signal.SIGKILL)


@dataclass
class Chaos:
    """The whole stage.

    Attributes:
        url: of the database.
        spenders: the seats of each scope, by the scope's name; they are not among `seats`.
        odds: how often each disturbance comes, in proportion.
        counts: what was done to the workers and the server.
        restarting: held while the server restarts.
    """

    folder: Path
    server: OwnServer
    url: str
    telegram: OnTelegram
    discord: OnDiscord
    provider: ChaosProvider
    service: EffectServer
    workers: list[Worker] = field(default_factory=list)
    seats: list[Seat] = field(default_factory=list)
    spenders: dict[str, list[Seat]] = field(default_factory=dict)
    odds: dict[str, int] = field(default_factory=lambda: {"kill": 5, "freeze": 3, "restart": 2})
    counts: Counter[str] = field(default_factory=Counter)
    restarting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def platforms(self) -> Sequence[Platform]:
        """Both of them."""
        return self.telegram, self.discord

    @property
    def all_seats(self) -> list[Seat]:
        """Every chat."""
        return [*self.seats, *(seat for seats in self.spenders.values() for seat in seats)]

    def set_up(self, workers: int, chats: int, spenders: int, turns_at_once: int, target: str) -> None:
        """Add people, and write the configuration of each worker."""
        owners: dict[str, list[str]] = {platform.name: [] for platform in self.platforms}
        for number in range(chats):
            platform = self.platforms[number % len(self.platforms)]
            person = platform.person(f"Person {number}")
            owners[platform.name].append(person)
            self.seats.append(self._seat(platform, person))
        budgets = []
        for number in range(spenders):
            person = self.telegram.person(f"Spender {number}")
            owners[self.telegram.name].append(person)
            user = self.telegram.rooms[person].chat.person
            rooms = [self.telegram.server.supergroup(f"Club {number}.{club}", [user]) for club in range(GROUPS)]
            seats = [self._seat(self.telegram, person), *(self._group(room, user) for room in rooms)]
            self.spenders[f"{number}"] = seats
            budgets.append(f'[budget.users."{self.telegram.name}:{person}"]\ntokens_day = {LIMIT_TOKENS}')
        env = {**acting_feature.install(self.folder / "packages"), "BUBBOT_MODEL__NAME": ""}
        for number in range(workers):
            home = self.folder / f"home{number}"
            home.mkdir(mode=0o700)
            (home / "config.toml").write_text("\n".join([*self._sections(owners, turns_at_once), *budgets]) + "\n")
            self.workers.append(Worker(home, env, target))

    @staticmethod
    def _seat(platform: Platform, person: str) -> Seat:
        return Seat(platform, platform.chat(person), platform.rooms[person], platform.rooms[person].write)

    def _group(self, room: Gathering, user: User) -> Seat:
        name = self.telegram.server.bot.user.username
        return Seat(self.telegram, str(room.id), room, lambda text: room.say(f"@{name} {text}", user))

    def _sections(self, owners: Mapping[str, Sequence[str]], turns_at_once: int) -> list[str]:
        store = {"url": self.url, **({"lease": LEASE_SECONDS} if "lease" in StoreSettings.model_fields else {})}
        model = {"name": "openai/chaos", "api_base": self.provider.address, "api_key": "chaos", "retry_wait": 0.1}
        sections: dict[str, Mapping[str, Any]] = {
            "bot": {"turns_at_once": turns_at_once},
            "store": store,
            "model": model,
            "acting": {"address": self.service.address},
        }
        for platform in self.platforms:
            keys = {"owners": owners[platform.name], "debounce": 0, "edit_interval": 0.5, **UNLIMITED}
            sections[f"channels.{platform.name}"] = {**platform.table(), **keys}
        return [
            line
            for name, section in sections.items()
            for line in (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items()))
        ]

    async def allow_acts(self) -> None:
        """Let the first worker alone ask for the standing grant, and say yes."""
        worker, seat = self.workers[0], self.seats[0]
        await worker.run()
        seat.say("act warm")
        await seat.platform.until(
            lambda: any("Always" in keys for keys in seat.platform.buttons(seat.room).values()), START_SECONDS
        )
        await self._until(lambda: "answer to <act warm>" in seat.texts())
        for message, keys in seat.platform.buttons(seat.room).items():
            seat.platform.press(seat.room, message, keys["Always"])
        await self._until(lambda: any(text.startswith("followed") for text in seat.texts()))

    async def _until(self, true: Callable[[], object], seconds: float = START_SECONDS) -> None:
        await self.telegram.until(true, seconds)

    async def talk(self, messages: int, seconds: float, rng: random.Random) -> None:
        """Let people say this many messages over the seconds, several in a row now and then, and spend what they may not."""
        texts: list[tuple[Seat, str]] = []
        for number in range(messages):
            seat = rng.choice(self.seats)
            kind = rng.choices(["say", "act", "ask"], [6, 3, 1])[0]
            texts.append((seat, f"{kind} {number}"))
        for scope, seats in self.spenders.items():
            texts += [
                (seat, f"spend {scope}-{place}-{number}") for place, seat in enumerate(seats) for number in range(3)
            ]
        # The first messages of all seats of a scope come at once: only then several workers meet at its budget.
        rng.shuffle(texts)
        pause = seconds / len(texts)
        while texts:
            for _ in range(min(len(texts), rng.choice([1, 1, 1, 2, 3]))):
                seat, text = texts.pop()
                seat.say(text)
            await asyncio.sleep(pause * rng.random() * 2)

    async def press(self) -> None:
        """Press `Once` on each card that has the button, and again after some seconds, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            for seat in self.seats:
                for message, keys in seat.platform.buttons(seat.room).items():
                    is_due = loop.time() > seat.pressed.get(message, -PRESS_AGAIN_SECONDS) + PRESS_AGAIN_SECONDS
                    if "Once" in keys and is_due:
                        seat.pressed[message] = loop.time()
                        seat.platform.press(seat.room, message, keys["Once"])
            await asyncio.sleep(0.3)

    async def disturb(self, times: int, seconds: float, rng: random.Random) -> None:
        """Kill, freeze and restart at random instants; leave every worker running.

        A frozen worker goes on after its lease ended, a killed one starts again within two seconds.
        """
        async with asyncio.TaskGroup() as group:
            for instant in sorted(rng.random() * seconds for _ in range(times)):
                what = rng.choices([*self.odds], [*self.odds.values()])[0]
                group.create_task(self._disturb(instant, what, rng))
        for worker in self.workers:
            worker.send(signal.SIGCONT)
            await self.revive(worker)

    async def _disturb(self, instant: float, what: str, rng: random.Random) -> None:
        await asyncio.sleep(instant)
        worker = rng.choice(self.workers)
        self.counts[what] += 1
        if what == "restart":
            async with self.restarting:
                await asyncio.to_thread(self.server.restart)
        elif what == "kill":
            await worker.kill()
            await asyncio.sleep(rng.random() * 2)
            await self.revive(worker)
        else:
            daemon = worker.daemon
            worker.send(signal.SIGSTOP)
            await asyncio.sleep(LEASE_SECONDS * (1.1 + rng.random()))
            if worker.daemon is daemon:  # else it was killed meanwhile
                worker.send(signal.SIGCONT)

    async def list_jobs(self) -> list[str]:
        """Return who works on which chats, and which chats wait."""
        statement = "SELECT lock, status::text, worker_id, args::text FROM bubbot_jobs.procrastinate_jobs ORDER BY id"
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as conn:
            return [f"job {row}" for row in await (await conn.execute(statement)).fetchall()]

    async def find_busy(self, seat: Seat) -> Worker:
        """Wait until a worker answers in a chat; return it."""
        statement = (
            "SELECT process FROM bubbot_jobs.procrastinate_jobs AS job JOIN bubbot.workers ON worker = worker_id "
            "WHERE job.lock = %s AND status = 'doing'"
        )
        async with (
            asyncio.timeout(START_SECONDS),
            await psycopg.AsyncConnection.connect(self.url, autocommit=True) as conn,
        ):
            while True:
                row = await (await conn.execute(statement, (f"{seat.platform.name}:{seat.chat}",))).fetchone()
                for worker in self.workers:
                    if row is not None and worker.daemon is not None and worker.daemon.process.pid == row[0]:
                        return worker
                await asyncio.sleep(0.02)

    async def revive(self, worker: Worker) -> None:
        """Start a worker that does not run; note how it ended."""
        if worker.has_ended():
            assert worker.daemon is not None
            worker.codes.append(worker.daemon.process.returncode or 0)
            worker.daemon = None
        if worker.daemon is None:
            await worker.start()

    async def aclose(self) -> None:
        """Kill what still runs."""
        for worker in self.workers:
            with suppress(TimeoutError):
                await worker.kill()


@asynccontextmanager
async def chaos(
    folder: Path, *, workers: int, chats: int, spenders: int = 0, turns_at_once: int = 64, target: str = BOT
) -> AsyncIterator[Chaos]:
    """Open a stage in an empty folder, with a server of its own; no worker runs yet."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(own_server(QUICK_RECOVERY))
        make_template(server)
        url = stack.enter_context(copied_database(server))
        telegram = await stack.enter_async_context(TelegramServer(limits=None, conflict_pause=0.1, longest_poll=0.5))
        discord = await stack.enter_async_context(DiscordServer(limits=None))
        provider = await stack.enter_async_context(chaos_provider())
        service = stack.enter_context(effect_server())
        stage = Chaos(folder, server, url, OnTelegram(telegram), OnDiscord(discord), provider, service)
        stack.push_async_callback(stage.aclose)
        stage.set_up(workers, chats, spenders, turns_at_once, target)
        yield stage
