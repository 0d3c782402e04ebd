"""The Chromium of the system, driven from tests, and what a page may not do in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, sync_playwright

SERIOUS = ("serious", "critical")
DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """One browser for the tests of a file. Without Chromium they are skipped; the proof fails."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        message = "there is no chromium here: apt-get install chromium"
        if request.config.getoption("--proof"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as driver:
        # Tests run as root in containers, where its sandbox cannot; it sees nothing but pages of ours.
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield opened
        finally:
            opened.close()


@dataclass
class Watch:
    """What a page did that it should not do.

    Attributes:
        home: the address of the page; every other one is elsewhere.
        problems: dialogs, errors, requests to elsewhere.
    """

    home: str
    problems: list[str] = field(default_factory=list)

    def follow(self, page: Page) -> None:
        """Watch a page from now on."""
        page.on("dialog", self._on_dialog)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("popup", lambda other: self.problems.append(f"window: {other.url}"))
        page.on("request", self._on_request)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        is_home = request.url.startswith(f"{self.home}/") or (
            self.home.startswith("file:") and request.url == self.home
        )
        if not is_home and parts.scheme not in ("data", "blob"):
            self.problems.append(f"request: {request.url}")


@contextmanager
def tab(browser: Browser, home: str, **options: object) -> Iterator[tuple[Page, Watch]]:
    """Open a tab with nothing stored, and watch what it does until the block ends."""
    context: BrowserContext = browser.new_context(accept_downloads=True, **options)  # type: ignore[arg-type]
    context.set_default_timeout(10_000)
    try:
        page, watch = context.new_page(), Watch(home)
        watch.follow(page)
        yield page, watch
    finally:
        context.close()


def find_faults(page: Page) -> list[str]:
    """Return what axe finds on a page that keeps people out, with the first place of each."""
    found = Axe().run(page).response["violations"]
    return [
        f"{fault['id']} ({fault['impact']}): {fault['nodes'][0]['html'][:200]}"
        for fault in found
        if fault["impact"] in SERIOUS
    ]
