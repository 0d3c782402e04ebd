"""Several `bubbot run` share one database: each message is answered once, in order, whoever dies or falls silent."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.platforms import OnTelegram
from tests.e2e.workers import Fleet, fleet
from tests.fakes.botapi.server import Server

SCRIPT: dict[str, Any] = {
    "rules": [{"when": "slow", "steps": [{"text": "late: {text}", "delay": 8}]}],
    "default": [{"text": "You said: {text}"}],
}
WAIT = 60.0


async def test_two_workers_answer_each_message_once_and_in_order(tmp_path: Path, postgres_address: str) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        platform = OnTelegram(server)
        people = [platform.person(f"person {number}") for number in range(6)]
        async with fleet(tmp_path, postgres_address, [platform], SCRIPT, settings={"owners": people}) as workers:
            await workers.start("one")
            await workers.start("two")
            await platform.heard()
            for number in range(4):
                for person in people:
                    platform.say(person, f"message {number}")
            try:
                await platform.until(lambda: all(len(platform.answers(person)) >= 4 for person in people), WAIT)
            finally:
                print(workers.log)
            await platform.quiet()
            for person in people:
                assert platform.answers(person) == [f"You said: message {number}" for number in range(4)]
            assert {await worker.end() for worker in workers.workers.values()} == {0}, workers.log
        assert workers.rows("SELECT count(*) FROM bubbot_jobs.procrastinate_jobs") == [(0,)]
        assert workers.rows("SELECT count(*) FROM bubbot_jobs.procrastinate_workers") == [(0,)]


async def _slow_turn_began(workers: Fleet, person: str) -> str:
    """Wait until a turn for somebody runs; return the name of its worker."""
    statement = (
        "SELECT process FROM bubbot_jobs.procrastinate_jobs AS job JOIN bubbot.workers ON worker = worker_id "
        f"WHERE job.lock = 'telegram:{person}' AND status = 'doing' AND EXISTS (SELECT FROM bubbot.forks)"
    )
    found = await workers.found(statement)
    return next(name for name, each in workers.workers.items() if each.process.pid == found[0][0])


async def test_a_killed_worker_loses_nothing_and_another_takes_over_within_the_lease(
    tmp_path: Path, postgres_address: str
) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        platform = OnTelegram(server)
        person = platform.person("Ada")
        async with fleet(tmp_path, postgres_address, [platform], SCRIPT, settings={"owners": [person]}) as workers:
            await workers.start("one")
            await workers.start("two")
            await platform.heard()
            platform.say(person, "slow")
            busy = await _slow_turn_began(workers, person)
            platform.say(person, "and then this")
            await asyncio.sleep(0.5)
            killed = time.monotonic()
            await workers.workers[busy].kill()
            try:
                await platform.until(lambda: len(platform.answers(person)) >= 2, WAIT)
            finally:
                print(workers.log)
            assert platform.answers(person) == ["late: slow", "You said: and then this"]
            print("answered after the kill:", round(time.monotonic() - killed, 1))


async def test_a_frozen_worker_writes_sends_and_runs_nothing_and_goes_on_with_other_work(
    tmp_path: Path, postgres_address: str
) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        platform = OnTelegram(server)
        people = [platform.person("Ada"), platform.person("Ben")]
        async with fleet(tmp_path, postgres_address, [platform], SCRIPT, settings={"owners": people}) as workers:
            await workers.start("one")
            await workers.start("two")
            await platform.heard()
            platform.say(people[0], "slow")
            busy = await _slow_turn_began(workers, people[0])
            workers.freeze(busy)
            try:
                await platform.until(lambda: platform.answers(people[0]), WAIT)
                sent = len(server.calls("sendMessage"))
                workers.thaw(busy)
                await workers.logged(busy, "action=worker.lost")
                await asyncio.sleep(1)
                assert len(server.calls("sendMessage")) == sent
                assert platform.answers(people[0]) == ["late: slow"]
                other = next(name for name in workers.workers if name != busy)
                await workers.workers[other].kill()  # now only the one that was frozen is there
                platform.say(people[1], "are you well?")
                await platform.until(lambda: platform.answers(people[1]), WAIT)
            finally:
                print(workers.log)
            assert platform.answers(people[1]) == ["You said: are you well?"]
            assert platform.answers(people[0]) == ["late: slow"]


async def test_questions_and_commands_at_a_worker_are_answered_there(tmp_path: Path, postgres_address: str) -> None:
    async with fleet(tmp_path, postgres_address, [], SCRIPT) as workers:
        await workers.start("one")
        await workers.start("two")
        for name in ("one", "two"):
            await workers.logged(name, "action=run.started")
        for name, text in (("one", "hello"), ("two", "hello again"), ("one", "and once more")):
            done = await asyncio.to_thread(workers.bubbot, name, "ask", text)
            assert done.stdout.decode().strip() == f"You said: {text}", done.stderr.decode() + workers.log
        both = await asyncio.gather(
            *(asyncio.to_thread(workers.bubbot, name, "ask", f"from {name}") for name in workers.workers)
        )
        assert [done.stdout.decode().strip() for done in both] == ["You said: from one", "You said: from two"], (
            workers.log
        )
        saved = await asyncio.to_thread(workers.bubbot, "two", "memory", "save", "default", "the sky is blue")
        assert saved.returncode == 0, saved.stderr.decode() + workers.log
        shown = await asyncio.to_thread(workers.bubbot, "one", "memory", "show", "default")
        assert b"the sky is blue" in shown.stdout, shown.stderr.decode() + workers.log
        listed = json.loads((await asyncio.to_thread(workers.bubbot, "one", "workers", "--json")).stdout)
        pids = {worker["pid"]: worker["id"] for worker in listed["workers"]}
        assert pids.keys() == {worker.process.pid for worker in workers.workers.values()}
        one = pids[workers.workers["one"].process.pid]
        done = await asyncio.to_thread(workers.bubbot, "two", "workers", "--drain", str(one))
        assert (done.returncode, done.stdout.count(b", ending")) == (0, 1), done.stderr.decode()
        assert await workers.workers["one"].ended() == 0
        again = await asyncio.to_thread(workers.bubbot, "two", "workers", "--drain", str(one))
        assert (
            again.returncode,
            f"there is no such process; those that run: {pids[workers.workers['two'].process.pid]}"
            in again.stderr.decode(),
        ) == (2, True)


async def test_a_worker_that_starts_again_goes_on_at_once_and_makes_the_jobs_that_are_missing(
    tmp_path: Path, postgres_address: str
) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        platform = OnTelegram(server)
        person = platform.person("Ada")
        how = {"settings": {"owners": [person]}, "env": {"BUBBOT_STORE__LEASE": "3600"}}  # nobody waits for it here
        async with fleet(tmp_path, postgres_address, [platform], SCRIPT, **how) as workers:
            await workers.start("one")
            await platform.heard()
            platform.say(person, "slow")
            await _slow_turn_began(workers, person)
            await workers.workers["one"].kill()
            await workers.start("one")
            await platform.until(lambda: platform.answers(person), WAIT)
            platform.say(person, "slow again")
            await workers.found("SELECT FROM bubbot.forks")
            await workers.workers["one"].kill()
            workers.rows("DELETE FROM bubbot_jobs.procrastinate_jobs RETURNING id")
            await workers.start("one")
            await platform.until(lambda: len(platform.answers(person)) >= 2, WAIT)
            assert platform.answers(person) == ["late: slow", "late: slow again"], workers.log
            assert await workers.workers["one"].end() == 0


async def test_another_receives_if_the_one_that_polls_freezes(tmp_path: Path, postgres_address: str) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        platform = OnTelegram(server)
        person = platform.person("Ada")
        async with fleet(tmp_path, postgres_address, [platform], SCRIPT, settings={"owners": [person]}) as workers:
            await workers.start("one")
            await platform.heard()
            await workers.start("two")
            await workers.logged("two", "action=run.started")
            assert "telegram.ready" not in workers.workers["two"].errors
            workers.freeze("one")
            platform.say(person, "anybody here?")
            try:
                await platform.until(lambda: platform.answers(person), WAIT)
            finally:
                print(workers.log)
            workers.thaw("one")
            await workers.logged("one", "action=work.lost")
            platform.say(person, "and now?")
            await platform.until(lambda: len(platform.answers(person)) >= 2, WAIT)
            assert platform.answers(person) == ["You said: anybody here?", "You said: and now?"], workers.log


async def test_a_worker_that_ends_in_order_finishes_its_turn_and_leaves_the_rest_to_the_other(
    tmp_path: Path, postgres_address: str
) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        platform = OnTelegram(server)
        person = platform.person("Ada")
        async with fleet(tmp_path, postgres_address, [platform], SCRIPT, settings={"owners": [person]}) as workers:
            await workers.start("one")
            await workers.start("two")
            await platform.heard()
            platform.say(person, "slow")
            busy = await _slow_turn_began(workers, person)
            platform.say(person, "then this")
            await platform.quiet()
            assert await workers.workers[busy].end() == 0
            await platform.until(lambda: len(platform.answers(person)) >= 2, WAIT)
            assert platform.answers(person) == ["late: slow", "You said: then this"]
            other = next(name for name in workers.workers if name != busy)
            assert (
                workers.workers[busy].errors.count("turn.end"),
                workers.workers[other].errors.count("turn.end"),
            ) == (1, 1)
            assert workers.rows("SELECT count(*) FROM bubbot.workers") == [(1,)]


async def test_a_stop_and_a_status_reach_the_worker_that_has_the_chat(tmp_path: Path, postgres_address: str) -> None:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        platform = OnTelegram(server)
        people = [platform.person(f"person {number}") for number in range(4)]
        async with fleet(tmp_path, postgres_address, [platform], SCRIPT, settings={"owners": people}) as workers:
            await workers.start("one")
            await workers.start("two")
            await platform.heard()
            for person in people:
                platform.say(person, "slow")
            for person in people:
                await _slow_turn_began(workers, person)
                platform.say(person, "/status")
                await platform.until(partial(platform.answers, person), WAIT)
                platform.say(person, "/stop")
            await platform.until(lambda: all(len(platform.answers(person)) >= 2 for person in people), WAIT)
            await platform.quiet()
            for person in people:
                status, stopped = platform.answers(person)
                assert status.startswith("I am answering"), status
                assert stopped.startswith("Stopped"), stopped
