"""The journey through the trace page on docs/howto/look-at-a-trace.md: its transcript and its pictures, from a real run.

`python -m tests.docs.journey` makes them again: `bubbot chat` with a scripted model fills a new home, `bubbot trace` serves it, and
Chromium walks. `test_journey.py` checks the pages, and in the proof that a new walk gives the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.docs.pages import ROOT

PAGES = (ROOT / "docs/howto/look-at-a-trace.md", ROOT / "docs/zh/howto/look-at-a-trace.md")
PICTURES = ROOT / "docs" / "pictures"
BLOCK = re.compile(r"(<!-- journey -->\n```text\n).*?(```\n)", re.DOTALL)
TYPED = (
    "Hello! I take my tea without sugar.",
    ",topic Trip to Rome",
    "We leave on the 3rd of May, and the hotel is called Aurora.",
    "Remember the hotel for me.",
    ",schedule.add tomorrow at 9 text=Pack for Rome",
    ",topic Cake",
    "The cake needs 250 grams of sugar.",
    ",topic Trip to Rome",
    "When do we leave, and how do I take my tea?",
)
TASK = """title = "Newsletter"

[nodes.papers]
title = "Read the papers"
prompt = "PAPERS: list what is new in our town."
tools = ["memory.save"]
artifact = { type = "array", items = { type = "string" } }

[nodes.letters]
title = "Read the letters"
prompt = "LETTERS: what do our readers write about?"

[nodes.draft]
title = "Write a draft"
after = ["papers", "letters"]
prompt = "DRAFT the newsletter."

[nodes.facts]
title = "Check the facts"
after = ["papers", "draft"]
prompt = "FACTS: check the draft against the papers."

[nodes.tone]
title = "Check the tone"
after = ["draft"]
prompt = "TONE: check that the draft is friendly."

[nodes.publish]
title = "Publish?"
after = ["draft", "facts", "tone"]
confirm = "Shall it go out?"

[nodes.send]
title = "Send it"
after = ["publish", "draft"]
prompt = "SEND it."
"""
RULES = """Feature: A newsletter
  Scenario: It notes nothing down
    When tool "memory.save" is called
    Then it is refused
"""


def _calls(name: str, **arguments: str) -> Mapping[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


SCRIPT = {
    "rules": [
        {"when": "without sugar.", "steps": [_calls("memory_save", content="- Takes tea without sugar"), {"text": "Noted."}]},
        {
            "when": "Remember the hotel",
            "steps": [
                _calls("memory_save", content="- Takes tea without sugar\n- Stays at the hotel Aurora in Rome"),
                {"text": "I keep that: the Aurora."},
            ],
        },
        {
            "when": "how do I take my tea",
            "steps": [_calls("tape_search", query="tea"), {"text": "On the 3rd of May; and you take your tea without sugar."}],
        },
        {"when": "PAPERS", "steps": [_calls("memory_save", content="x"), {"text": '["The school has a new roof."]'}]},
        {"when": "LETTERS", "steps": [{"text": "Two readers ask about the school."}]},
        {"when": "DRAFT", "steps": [{"text": "Our school has a new roof."}]},
        {"when": "FACTS|TONE", "steps": [{"text": "It is."}]},
    ],
    "default": [{"text": "Noted."}],
}  # fmt: skip
VIEWPORT = {"width": 1100, "height": 760}
PHONE = {"width": 390, "height": 780}


@contextmanager
def open_page(folder: Path) -> Iterator[str]:
    """Fill a new home by `bubbot chat` and `bubbot task run`, serve it by `bubbot trace`, and yield the address that it prints."""
    rules = folder / "home" / "tasks" / "newsletter" / "scripts" / "rules.feature"
    rules.parent.mkdir(parents=True)
    rules.write_text(RULES, encoding="utf-8")
    (rules.parent.parent / "task.toml").write_text(TASK, encoding="utf-8")
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),  # the program of this folder, wherever the command is installed
        "BUBBOT_HOME": str(folder / "home"),
        "BUBBOT_MODEL__NAME": "scripted",
        "BUBBOT_MODEL__SCRIPT": str(script),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    command = Path(sys.executable).with_name("bubbot")
    lines = "".join(f"{line}\n" for line in TYPED)
    subprocess.run(
        [command, "chat"], input=lines, text=True, env=environment, cwd=folder, check=True, capture_output=True
    )
    asked = "What is new at the school?"
    subprocess.run(
        [command, "task", "run", "newsletter", asked], env=environment, cwd=folder, check=True, capture_output=True
    )
    server = subprocess.Popen(
        [command, "trace", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=folder,
    )
    try:
        assert server.stdout
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.communicate(timeout=30)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the Chromium of the system."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path is not None, "there is no chromium here: apt-get install chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


def walk(pictures: Path) -> str:
    """Walk through the page of a new home; take the pictures, and return the transcript."""
    with tempfile.TemporaryDirectory() as folder, open_page(Path(folder)) as address, open_browser() as browser:
        context = browser.new_context(viewport=VIEWPORT, color_scheme="light", accept_downloads=True)  # type: ignore[arg-type]
        page = context.new_page()
        lines = ["$ bubbot trace", "http://127.0.0.1:8766/?token=…", ""]
        page.goto(address)
        lines += ["open:     " + ", ".join(texts(page, "tbody th"))]

        page.get_by_role("link", name="Tasks", exact=True).click()
        page.locator("tbody a").first.click()
        graph = page.get_by_role("group", name="What waits for what")
        lines += [
            f"task:     {len(texts(page, 'tbody >> nth=0 >> tr'))} steps; " + ", ".join(texts(page, ".legend li"))
        ]
        expect(graph.locator("g.waiting")).to_be_visible()
        page.screenshot(path=pictures / "trace-task.png")

        page.get_by_role("link", name="Search").click()
        page.get_by_role("searchbox").fill("aurora")
        page.keyboard.press("Enter")
        expect(page.locator("tbody")).to_be_visible()
        found = [text for text in texts(page, "tbody tr") if " message " in text]
        lines += [f"find:     “aurora” in {len(found)} messages, the newest: {found[0].partition(' message ')[2]}"]
        page.get_by_role("row").filter(has_text="message").get_by_role("link").first.click()

        page.get_by_role("link", name="Turns", exact=True).click()
        page.get_by_role("listitem").filter(has_text="how do I take my tea").get_by_role("link").first.click()
        lines += ["turn:     " + " · ".join(texts(page, "dl.facts >> nth=0 >> div")[:3])]
        page.screenshot(path=pictures / "trace-turn.png")

        page.get_by_role("heading", name="Step 1").get_by_role("link").click()
        lines += [f"step 1:   {note(page)}"]
        page.get_by_role("slider").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("heading", name=re.compile("Step 2"))).to_be_visible()
        lines += [f"scrub:    {note(page)}"]
        changes = page.locator("section").filter(has=page.get_by_role("heading", name=re.compile("What changed")))
        lines += ["compare:  " + " · ".join(texts(changes.first, "li")[:3])]
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=pictures / "trace-step-dark.png")
        page.emulate_media(color_scheme="light")

        page.get_by_role("link", name="Memory", exact=True).click()
        lines += ["memory:   " + " ".join(f"+ {text}" for text in texts(page, "ins"))]
        page.get_by_role("link", name="Schedules").last.click()
        lines += ["schedule: " + " · ".join(texts(page, "tbody tr >> nth=0 >> td")[1:4:2])]
        page.get_by_role("link", name="Anchors", exact=True).click()
        nodes = [text.partition(" #")[0] for text in page.locator("svg a text").all_text_contents()]
        lines += [f"anchors:  {len(nodes)}, the newest: {nodes[-1]}"]
        page.screenshot(path=pictures / "trace-anchors.png")
        page.get_by_role("link", name="Judge", exact=True).click()
        page.locator("tbody a").first.click()
        expect(page.locator("[data-keys]")).to_be_focused()  # the script of the page listens
        page.keyboard.press("5")
        page.keyboard.press("w")
        page.keyboard.type("It looked both up.")
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        lines += ["judge:    " + " · ".join(texts(page, "tbody td")[1:])]
        page.screenshot(path=pictures / "trace-judge.png", full_page=True)
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        page.get_by_role("link", name="Turns", exact=True).click()
        expect(page.locator("#turns")).to_be_visible()
        page.screenshot(path=pictures / "trace-phone.png")

        page.get_by_role("link", name="Export").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Store the file").click()
        file = Path(folder, "trace.html")
        download.value.save_as(file)
        context.set_offline(True)
        page.goto(file.as_uri())
        counts = page.locator("li.entry").count(), page.locator("script").count()
        lines += [f"export:   one file; offline it shows {counts[0]} entries, with {counts[1]} scripts"]
        context.close()
    return "\n".join(_replace_varying(line) for line in lines)


def texts(place: Page | Locator, selector: str) -> list[str]:
    """The texts of all places, each on one line."""
    return [" ".join(text.split()) for text in place.locator(selector).all_inner_texts()]


def note(page: Page) -> str:
    """Say whether the request is what was recorded."""
    return " ".join(page.get_by_text(re.compile("Rebuilt from the tape")).first.inner_text().split())


def _replace_varying(line: str) -> str:
    line = re.sub(r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?\b", "2026-11-24 09:00", line)
    return re.sub(r"\b\w{3} \d+ \w{3} 20\d\d\b", "Wed 25 Nov 2026", line)


def replace_journey(text: str, transcript: str) -> str:
    """Put a transcript into the text of a page."""
    return BLOCK.sub(lambda found: f"{found[1]}{transcript}\n{found[2]}", text)


def main() -> None:
    """Make the pictures and the transcript again."""
    transcript = walk(PICTURES)
    for page in PAGES:
        page.write_text(replace_journey(page.read_text(encoding="utf-8"), transcript), encoding="utf-8")
    print(transcript)


if __name__ == "__main__":
    main()
