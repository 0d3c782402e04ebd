"""Judging on the trace page, in a real browser: the decision first, then the form, by keyboard and without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e import bot
from tests.e2e.test_trace import GIVE_UP, sockets, tape_of, write_config
from tests.trace.browser import DESKTOP, browser, find_faults, tab

__all__ = ["browser"]

SCRIPT = {"default": [{"text": "You said: {text}"}]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two answers in a chat."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "script.json").write_text(json.dumps(SCRIPT))
    write_config(home)
    for text in ("the garden", "<b>the cellar</b>"):
        done = bot.run(home, "ask", "--session", "ours", text)
        assert done.returncode == 0, done.stderr
    return home


@contextmanager
def page_without_bot(home: Path) -> Iterator[str]:
    with bot.opened(home, "trace", "--no-browser") as opened:
        yield opened.stdout.readline().decode().strip()


@contextmanager
def page_of_bot(home: Path, account: str, folder: str) -> Iterator[str]:
    write_config(home, '[channels.telegram]\ntoken = "1:a"\n')  # never started: the grant asks for its name
    done = bot.run(home, "access", "grant", *account.split(":"), "owner")
    assert done.returncode == 0, done.stderr
    write_config(home, '[trace]\nport = 0\nurl = "http://localhost:8"\n')
    with bot.opened(home, "run", XDG_RUNTIME_DIR=folder) as opened:
        port = ""
        for line in opened.stderr:
            if b"action=pages.listening" in line:
                port = line.rpartition(b"port=")[2].split()[0].decode()
            if b"action=run.started" in line:
                break
        token = bot.run(home, "trace", "--token", account).stdout.decode().strip().partition("token=")[2]
        yield f"http://127.0.0.1:{port}/?token={token}"
        opened.process.terminate()
        assert opened.process.wait(GIVE_UP) == 0


def labels(home: Path) -> list[dict[str, object]]:
    done = bot.run(home, "judge", "list", "stdin:ours", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)["labels"]
    return found


def panel_of(home: Path, link: str, target: str = "") -> str:
    parts = urlsplit(link)
    path = f"/session/{quote(tape_of(home, 'ours'), safe='')}/panel/judge"
    return f"{parts.scheme}://{parts.netloc}{path}" + (f"?p.target={target}" if target else "")


def test_an_owner_judges_by_keyboard_after_seeing_the_decision(browser: Browser, home: Path) -> None:
    with page_without_bot(home) as link, tab(browser, link.partition("/?")[0], viewport=DESKTOP) as (page, watch):
        page.goto(link)
        page.goto(panel_of(home, link))
        expect(page.get_by_text("You said: the garden")).to_be_visible()
        page.get_by_role("link", name="#").first.click()
        expect(page.get_by_role("heading", name="What the model was shown")).to_be_visible()
        shown = page.locator("main").inner_text()
        assert shown.index("What the model was shown") < shown.index("What it chose") < shown.index("Your judgement")
        assert page.locator("main b").count() == 0
        assert find_faults(page) == []
        expect(page.locator("[data-keys]")).to_be_focused()  # the script of the page listens
        page.keyboard.press("p")
        expect(page.get_by_text("You said: the garden")).to_be_visible()
        expect(page.locator("[data-keys]")).to_be_focused()
        page.keyboard.press("4")
        expect(page.get_by_label("4", exact=True)).to_be_checked()
        page.keyboard.press("l")
        page.keyboard.type("good 2n")
        page.keyboard.press("Escape")
        page.keyboard.press("w")
        page.keyboard.type("It names the garden.")
        page.keyboard.press("Escape")
        page.keyboard.press("s")
        expect(page.get_by_role("cell", name="4 good 2n")).to_be_visible()
        expect(page.get_by_label("4", exact=True)).to_be_checked()
        expect(page.locator("[data-keys]")).to_be_focused()
        page.keyboard.press("n")
        expect(page.get_by_text("You said: <b>the cellar</b>")).to_be_visible()
        expect(page.get_by_label("4", exact=True)).not_to_be_checked()
        assert watch.problems == []
    (label,) = labels(home)
    assert (label["score"], label["label"], label["why"]) == (4.0, "good 2n", "It names the garden.")
    assert (label["kind"], label["name"]) == ("human", "quality")


def test_the_page_of_the_bot_knows_who_judges_and_without_scripts_it_works_alike(browser: Browser, home: Path) -> None:
    with (
        sockets() as folder,
        page_of_bot(home, "telegram:42", folder) as link,
        tab(browser, link.partition("/?")[0], java_script_enabled=False) as (page, watch),
    ):
        page.goto(link)
        page.goto(panel_of(home, link))
        page.get_by_role("link", name="#").first.click()
        page.get_by_label("2", exact=True).check()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("cell", name="2", exact=True)).to_be_visible()
        page.get_by_label("5", exact=True).check()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("cell", name="5", exact=True)).to_be_visible()
        assert watch.problems == []
    newest, oldest = labels(home)
    assert (newest["by"], newest["score"], newest["superseded_by"]) == ("telegram:42", 5.0, 0)
    assert (oldest["score"], oldest["superseded_by"]) == (2.0, newest["entry"])


def send(link: str, target: str, fields: dict[str, str] | None, **headers: str) -> tuple[int, str]:
    """Log in with a link, then send a form as any program could, or without one look at a page."""
    parts = urlsplit(link)
    connection = HTTPConnection(parts.netloc, timeout=GIVE_UP)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    answer.read()
    cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
    own = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    path, method = urlsplit(target), "GET" if fields is None else "POST"
    connection.request(method, f"{path.path}?{path.query}", urlencode(fields or {}), own | headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def get(link: str, target: str) -> str:
    status, text = send(link, target, None)
    assert status == 200, text
    return text


def test_only_owners_send_it_only_from_here_and_wrong_fields_are_named(home: Path) -> None:
    with sockets() as folder, page_of_bot(home, "telegram:42", folder) as link:
        panel, good = panel_of(home, link, "1"), {"score": "3"}
        assert send(link, panel, good, Origin="https://evil.example")[0] == 403
        assert send(link, panel, good, Origin="null")[0] == 403
        assert send(link, panel, good, Cookie="")[0] == 401
        for fields, words in (
            ({"score": "much"}, "much"),
            ({"score": "nan"}, "nan"),
            ({}, "needs a score"),
            ({"score": "1", "name": "Not A Name"}, "name"),
            ({"score": "1", "why": "x" * 2_001}, "why"),
        ):
            status, text = send(link, panel, fields)
            assert status == 400, fields
            assert words in text, text
        assert send(link, panel, {"score": "1", "why": "x" * 70_000})[0] == 413
        status, text = send(link, panel_of(home, link, "9999"), good)
        assert (status, "9999" in text) == (400, True)
        for other in ("", "/turns", "/panel/memory", "/panel/nothing"):
            assert send(link, panel.partition("/panel")[0] + other, good)[0] == 404, other
        assert labels(home) == []
        done = bot.run(home, "access", "grant-audit", "ann", "stdin:ours", env={"XDG_RUNTIME_DIR": folder})
        assert done.returncode == 0, done.stderr
        token = bot.run(home, "trace", "--token", "ann").stdout.decode().strip().partition("token=")[2]
        auditor = f"{link.partition('/?')[0]}/?token={token}"
        shown = get(auditor, panel)
        assert ("<h2>" in shown, 'class="judge"' in shown) == (True, False)  # they look
        status, text = send(auditor, panel, good)
        assert (status, "only an owner" in text) == (403, True)
        assert send(link, panel, good)[0] == 303
    assert [each["score"] for each in labels(home)] == [3.0]


def test_an_archive_and_a_tape_of_the_system_are_looked_at_and_nothing_is_written_elsewhere(home: Path) -> None:
    chat, archive = tape_of(home, "ours"), bot.run(home, "tape", "archive", "stdin:ours").stdout.decode().strip()
    assert bot.run(home, "ask", "--session", "ours", "another life").returncode == 0
    with page_without_bot(home) as link:
        panel = panel_of(home, link, "6")
        assert 'class="judge"' in get(link, panel)
        for name in (archive, "bubbot/outbox/stdin"):
            other = panel.replace(quote(chat, safe=""), quote(name, safe=""))
            assert 'class="judge"' not in get(link, other)
            status, text = send(link, other, {"score": "1"})
            assert (status, name in text) == (400, True), text
    assert labels(home) == []


def test_what_is_wrong_is_said_in_a_sentence_by_the_page_and_for_the_form(home: Path) -> None:
    with page_without_bot(home) as link:
        assert "there is no entry 9999" in get(link, panel_of(home, link, "9999"))
        status, text = send(link, panel_of(home, link, "6"), {"score": "much"})
        assert (status, "the score much is not a number" in text) == (400, True), text
