"""The provider of the model: it takes the key, refuses it, is slow, or is not there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbot.gateway.quarantine import Quarantine
from bubbot.home import Home
from bubbot.ports.checks import Finding
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.service import TapeService
from tests.doubles import START, CountingIds
from tests.e2e.key_server import KEY, WRONG_KEY, KeyServer, key_server
from tests.planting import examine, found, mend, mend_in_shell, mends, plants, write

pytestmark = pytest.mark.usefixtures("no_plugins", "no_systemd")


@contextmanager
def provider(server: KeyServer | None = None) -> Iterator[KeyServer]:
    """The server in a thread of its own: the doctor has an event loop itself."""
    running = server or KeyServer()
    loop, ready, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with key_server(running):
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(30)
    try:
        yield running
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("BUBBOT_HOME", str(home.path))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BUBBOT_MODEL__NAME"):
        monkeypatch.delenv(name, raising=False)
    return home


def config(home: Home, base: str, key: str, name: str = "openai/gpt-4.9-turbo") -> str:
    text = f'[model]\nname = "{name}"\napi_base = "{base}"\napi_key = "{key}"\n'
    home.config.write_text(text)
    home.config.chmod(0o600)
    return text


def checkup(home: Home, *, online: bool = True) -> Callable[[], Iterable[Finding]]:
    return lambda: examine(home, online=online)


@plants("model.accepted")
def test_a_provider_that_takes_the_key_shows_its_list_and_is_sent_no_message(home: Home) -> None:
    with provider() as server:
        config(home, server.base, KEY)
        finding = found(checkup(home)())["model.accepted"]
        assert (finding.level, server.paths) == ("ok", ["/v1/models"])
        assert "lists it" in finding.cause


def test_one_without_a_list_is_sent_one_short_message(home: Home) -> None:
    with provider(KeyServer(models=None)) as server:
        config(home, server.base, KEY)
        assert "answered a short call" in found(checkup(home)())["model.accepted"].cause
        assert server.paths == ["/v1/models", "/v1/chat/completions"]
        assert server.requests[1].body["max_tokens"] == 64


@pytest.mark.parametrize(("call_status", "wanted"), [(404, "model.refused"), (200, "model.accepted")])
def test_a_model_that_the_list_does_not_name_is_sent_one_short_message(
    home: Home, call_status: int, wanted: str
) -> None:
    with provider(KeyServer(call_status=call_status)) as server:
        config(home, server.base, KEY, "openai/gpt-4-retired")
        cause = found(checkup(home)())[wanted].cause
        assert server.paths == ["/v1/models", "/v1/chat/completions"]
        assert not cause.endswith("..")


def test_one_that_refuses_the_form_of_the_call_has_taken_the_key(home: Home) -> None:
    """A bot asks it in another form."""
    error = {"message": "stream_options: Extra inputs are not permitted"}
    with provider(KeyServer(models=None, call_status=400, call_error=error)) as server:
        config(home, server.base, KEY)
        assert "model.accepted" in found(checkup(home)())


def test_nobody_is_asked_offline_or_without_a_key(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with provider() as server:
        config(home, server.base, KEY)
        ids = {finding.id for finding in checkup(home, online=False)()}
        home.config.write_text('[model]\nname = "openai/gpt-4.9-turbo"\n')
        monkeypatch.setenv("OPENAI_BASE_URL", server.base)
        ids |= {finding.id for finding in checkup(home)()}
        assert not ids & {"model.accepted", "model.unreachable", "model.key_refused"}
        assert server.paths == []


@plants("model.key_refused")
@mends("model.key_refused")
def test_a_refused_key_is_replaced_where_it_came_from(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with provider() as server:
        right = config(home, server.base, KEY)
        config(home, server.base, WRONG_KEY)
        finding = found(checkup(home)())["model.key_refused"]
        assert finding.level == "problem"
        assert "Incorrect API key" in finding.cause
        assert WRONG_KEY not in finding.cause
        mend(checkup(home), "model.key_refused", tmp_path, text=right)
        # In a file of its own.
        home.config.write_text(right.replace(f'api_key = "{KEY}"', 'api_key_file = "key"'))
        (home.path / "key").write_text(WRONG_KEY)
        mend(checkup(home), "model.key_refused", tmp_path, data=KEY)
        # In the provider's own variable.
        home.config.write_text('[model]\nname = "openai/gpt-4.9-turbo"\n')
        monkeypatch.setenv("OPENAI_BASE_URL", server.base)
        monkeypatch.setenv("OPENAI_API_KEY", WRONG_KEY)
        finding = found(checkup(home)())["model.key_refused"]
        assert finding.fix == "read -r OPENAI_API_KEY && export OPENAI_API_KEY"
        mend_in_shell(finding, tmp_path, data=f"{KEY}\n", options="")


@plants("model.refused")
@mends("model.refused")
def test_a_model_that_the_provider_refuses_is_exchanged(home: Home, tmp_path: Path) -> None:
    with provider(KeyServer(models=None, call_status=402)) as server, provider() as other:
        right = config(home, other.base, KEY)
        config(home, server.base, KEY)
        assert "You have no credit left" in found(checkup(home)())["model.refused"].cause
        mend(checkup(home), "model.refused", tmp_path, text=right)


@plants("model.unreachable")
def test_one_that_is_slow_or_not_there_is_a_warning(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    config(home, "http://user:secret@127.0.0.1:9/v1", KEY)
    finding = found(checkup(home)())["model.unreachable"]
    assert (finding.level, finding.fix) == ("warning", "curl -sSI http://127.0.0.1:9")
    monkeypatch.setattr("bubbot.ops.doctor.model.LIST_SECONDS", 0.2)
    with provider(KeyServer(hangs=True)) as server:
        config(home, server.base, KEY)
        finding = found(checkup(home)())["model.unreachable"]
        assert finding.level == "warning"
        assert "did not answer within 0.2 seconds" in finding.cause


def test_in_quarantine_no_key_goes_to_an_address_that_came_with_the_backup(home: Home) -> None:
    async def restored(store: SqliteStore) -> None:
        tape = TapeService(store, "bubbot/home", now=lambda: START, new_id=CountingIds())
        await Quarantine(tape).record_restore("backup", created="2026-11-20T00:00:00", head="1", bubbot="0.1")

    write(home, restored)
    with provider() as server:
        config(home, server.base, KEY)
        assert "home.quarantine" in {finding.id for finding in checkup(home)()}
        assert server.paths == []
