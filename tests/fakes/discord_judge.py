"""A plugin for pytest, `-p tests.fakes.discord_judge`: Discord's description judges every call of every fake server.

Each call becomes a line of JSON in the file that `BUBBOT_DISCORD_JUDGED` names: route, status, what is wrong with the
request, what is wrong with the answer.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType

from tests.fakes.discord_spec import API, RESULTS_VARIABLE, VARIABLE, Spec
from tests.fakes.discordapi.http import Call
from tests.fakes.discordapi.server import Server

_spec = Spec.load(os.environ[VARIABLE])
_leave = Server.__aexit__


def judge(call: Call) -> tuple[str, int, list[str], list[str]]:
    """Route, status, problems of the request, problems of the answer."""
    path = call.path.removeprefix(API)
    found = _spec.find(call.method, path)
    if found is None:
        return f"{call.method} {path}", call.status, ["no such route"], []
    asked = _spec.judge_request(found, call.query, call.json, has_files=bool(call.files))
    # A fault puts something else in the place of the answer.
    told = _spec.judge_answer(found, call.status, call.result) if call.status and call.fault is None else ()
    return found.route, call.status, list(asked), list(told)


async def _judge_and_leave(
    self: Server, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    _write([judge(call) for call in self.log if call.path.startswith(API)])
    await _leave(self, kind, error, trace)


def _write(judged: list[tuple[str, int, list[str], list[str]]]) -> None:
    with Path(os.environ[RESULTS_VARIABLE]).open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(one)}\n" for one in judged)


Server.__aexit__ = _judge_and_leave  # type: ignore[method-assign, assignment]
