"""Several `bubbot run` share one database: each message is answered once, in order, whoever dies or falls silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.platforms import OnTelegram
from tests.e2e.workers import fleet
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
