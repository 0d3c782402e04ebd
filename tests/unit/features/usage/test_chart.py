"""Charts: what is drawn, in a real child process, with fonts that have the characters; and how a chart goes out."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, timedelta
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from msgspec.structs import replace

from bubbot.errors import DeliveryFailed
from bubbot.features.usage.feature import usage_feature
from bubbot.features.usage.reporter import UsageReporter
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role
from bubbot.ports.usage import BudgetSubject
from bubbot.runtime.attachments import image_type
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from tests.budgets import budget_tape, opened, plan, spend
from tests.docs.pages import ROOT
from tests.doubles import SteppingClock
from tests.turns import Bench, KeptChannel, Options, running

if TYPE_CHECKING:
    from fontTools.ttLib import TTFont  # type: ignore[import-untyped]  # it has no stubs

DRAWING_FILE = ROOT / "bubbot" / "features" / "usage" / "draw.py"
DRAWING_SECONDS = 60.0
"""Seconds that a chart may take on a busy machine."""


async def spent(store: InMemoryStore, *chats: str) -> UsageReporter:
    """A call in each of these chats, two days ago and today."""
    clock = SteppingClock()
    clock.advance(timedelta(days=-2))
    budget = await opened(store, plan(), clock=clock)
    for days in (0, 2):
        clock.advance(timedelta(days=days))
        for number, chat in enumerate(chats):
            await spend(budget, 10, 5, BudgetSubject(chat, "test:1", turn=f"t{days}{number}"))
    return UsageReporter(budget_tape(store), clock, UTC)


@pytest.fixture
def charts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was to be drawn; other tests draw."""
    charts: list[Any] = []

    async def noted(chart: Any) -> Any:
        charts.append(chart)
        return SimpleNamespace(image=b"", numbered={}, format_numbered=lambda _texts: [])

    monkeypatch.setattr("bubbot.features.usage.chart.draw_chart", noted)
    return charts


async def ask_owner(reporter: UsageReporter, text: str, language: str = "en") -> None:
    options = Options(tools=usage_feature(lambda: reporter).tools, texts=Texts(language))
    async with running(InMemoryStore(), ScriptedModel(), options) as bench:
        await asked(bench, text, chat="office")


async def asked(bench: Bench, text: str, **given: Any) -> str:
    async with asyncio.timeout(DRAWING_SECONDS):
        return (await (await bench.post(text, **given))).text


def drawn_with(drawing: Any, home: Path) -> tuple[dict[str, str], bytes]:
    """Draw in a process whose user has this folder, where fonts may be."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "MPLCONFIGDIR": str(home), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-P", DRAWING_FILE],
        input=msgspec.json.encode(drawing),
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    head, _, image = done.stdout.partition(b"\n")
    return json.loads(head)["numbered"], image


def make_font(family: str, characters: str) -> TTFont:
    """A font with squares for these characters."""
    from fontTools.fontBuilder import FontBuilder  # type: ignore[import-untyped]  # it has no stubs
    from fontTools.pens.ttGlyphPen import TTGlyphPen  # type: ignore[import-untyped]

    names = {ord(char): f"uni{ord(char):04X}" for char in characters}
    glyphs = [".notdef", *names.values()]
    pen = TTGlyphPen(None)
    for place, point in enumerate(((100, 0), (900, 0), (900, 800), (100, 800))):
        (pen.lineTo if place else pen.moveTo)(point)
    pen.closePath()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(glyphs)
    builder.setupCharacterMap(names)
    builder.setupGlyf(dict.fromkeys(glyphs, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    return builder.font


def install_font(home: Path, characters: str, kind: str) -> None:
    """Give a user a font with these characters, alone or, as fonts for Chinese often are, as the second of a collection."""
    from fontTools.ttLib import TTCollection

    folder = home / ".local" / "share" / "fonts"
    folder.mkdir(parents=True)
    font = make_font("Squares of Bubbot", characters)
    if kind == "ttc":
        collection = TTCollection()
        collection.fonts = [make_font("Others of Bubbot", "Z"), font]
        font = collection
    font.save(folder / f"squares.{kind}")


async def test_a_panel_has_each_day_and_each_name(memory_store: InMemoryStore, charts: list[Any]) -> None:
    await ask_owner(await spent(memory_store, "test:home", "test:far"), ",usage chart")
    (chart,) = charts
    panels = {panel.title[0]: panel for panel in chart.panels}
    assert list(panels)[:2] == ["By day (USD)", "By chat (USD)"]
    assert "By model (USD)" in panels
    days, chats = panels["By day (USD)"], panels["By chat (USD)"]
    labels = [row.label[0] for row in days.rows]
    assert (labels[0], labels[-3:], len(labels)) == ("11-01", ["11-19", "11-20", "11-21"], 21)
    assert [row.value for row in days.rows[-3:]] == [30.0, 0.0, 30.0]
    assert [(row.label[0], row.value, row.amount[0]) for row in chats.rows] == [
        ("test:far", 30.0, "30.00 USD"),
        ("test:home", 30.0, "30.00 USD"),
    ]
    assert chart.title[0].startswith("This month 60.00 USD; 4 answers")


async def test_many_names_end_in_the_sum_of_the_rest(memory_store: InMemoryStore, charts: list[Any]) -> None:
    await ask_owner(await spent(memory_store, *(f"test:{number:02}" for number in range(20))), ",usage chart")
    [panel] = [panel for panel in charts[0].panels if panel.title[0] == "By chat (USD)"]
    assert len(panel.rows) == 12
    rest = panel.rows[-1]
    assert (rest.label, rest.value, rest.amount) == (("the rest",) * 2, 9 * 30.0, ("270.00 USD",) * 2)


@pytest.mark.proof
async def test_an_svg_drawn_twice_has_the_same_bytes(
    memory_store: InMemoryStore, charts: list[Any], tmp_path: Path
) -> None:
    await ask_owner(await spent(memory_store, "test:home"), ",usage chart")
    chart = replace(charts[0], format="svg")
    first, second = (drawn_with(chart, tmp_path)[1] for _ in range(2))
    assert ET.fromstring(first).tag.endswith("}svg")
    assert first == second


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["ttf", pytest.param("ttc", marks=pytest.mark.proof)])
async def test_each_character_that_is_drawn_has_a_glyph_with_a_font_for_it(
    memory_store: InMemoryStore, charts: list[Any], tmp_path: Path, kind: str
) -> None:
    """The child refuses to draw a character without a glyph, so this fails if a font is chosen wrongly."""
    await ask_owner(await spent(memory_store, "test:家庭"), ",usage chart", "zh")
    (chart,) = charts
    texts = msgspec.json.encode(chart).decode()
    install_font(tmp_path, "".join(sorted({char for char in texts if ord(char) > 0x2E80})), kind)
    numbered, with_font = drawn_with(chart, tmp_path)
    assert numbered == {}
    if kind == "ttc":  # in the proof
        bare = tmp_path / "bare"
        bare.mkdir()
        numbered, without = drawn_with(chart, bare)
        if numbered:  # this machine has no font for Chinese
            assert numbered == {"#1": "test:家庭"}
            assert with_font != without


@pytest.mark.proof
def test_what_no_font_has_is_replaced_by_english_or_a_number() -> None:
    from bubbot.features.usage.draw import Labels  # here, as every worker collects: matplotlib takes a second

    nowhere = "\U0001f9ff\U0010fffd"  # the second one is for private use
    labels = Labels([(nowhere, "By day"), (f"stdin:{nowhere}", ""), ("plain", "")])
    assert labels.choose((nowhere, "By day")) == "By day"
    assert labels.choose(("plain", "")) == "plain"
    assert [labels.choose((f"stdin:{nowhere}", "")) for _ in range(2)] == ["#1", "#1"]
    assert labels.choose((f"other:{nowhere}", "")) == "#2"
    assert labels.numbered == {"#1": f"stdin:{nowhere}", "#2": f"other:{nowhere}"}


@pytest.mark.filterwarnings("default")  # the suite would turn any warning into an error
def test_a_character_without_a_glyph_fails_instead_of_being_a_box(monkeypatch: pytest.MonkeyPatch) -> None:
    from bubbot.features.usage.draw import Labels, draw

    monkeypatch.setattr(Labels, "choose", lambda self, pair: pair[0])
    panel = {"kind": "bars", "title": ["a", ""], "rows": [[["a", ""], 1.0, ["1", ""]]]}
    with pytest.raises(UserWarning, match="missing from font"):
        draw({"format": "png", "title": ["\U0010fffd", ""], "panels": [panel]})


@pytest.mark.parametrize(
    ("text", "period"),
    [("chart", "This month"), ("chart day", "Today"), ("all chart", "So far"), ("month chart", "This month")],
)
async def test_the_word_chart_stands_before_or_after_the_period(
    memory_store: InMemoryStore, charts: list[Any], text: str, period: str
) -> None:
    await ask_owner(await spent(memory_store, "test:home"), f",usage {text}")
    assert charts[0].title[0].startswith(period)


@pytest.mark.proof
async def test_a_chart_goes_out_as_a_file_of_the_answer(memory_store: InMemoryStore) -> None:
    reporter = await spent(memory_store, "test:home", "test:家庭")
    channel, store = KeptChannel(), InMemoryStore()
    async with running(
        store, ScriptedModel(), Options(tools=usage_feature(lambda: reporter).tools), channel=channel
    ) as bench:
        text = await asked(bench, ",usage chart")
        await bench.quiet()
    assert text.splitlines()[0] == "This month 60.00 USD; 4 answers; most in Ann on test."
    [name] = channel.received
    assert (name, image_type(channel.received[name])) == ("usage-2026-11-21.png", "image/png")


async def test_a_chart_that_could_not_be_sent_goes_out_after_a_restart(memory_store: InMemoryStore) -> None:
    from PIL import Image

    reporter, store = await spent(memory_store, "test:home"), InMemoryStore()
    options, broken, channel = Options(tools=usage_feature(lambda: reporter).tools), KeptChannel(), KeptChannel()
    broken.failures = [DeliveryFailed("no network")] * 20
    async with running(store, ScriptedModel(), options, channel=broken) as bench:
        await asked(bench, ",usage chart")
    assert broken.received == {}
    async with running(store, ScriptedModel(), options, channel=channel, life="second") as bench:
        await bench.resume()
        await bench.quiet()
    assert channel.texts == ["This month 30.00 USD; 2 answers.", ""]
    (content,) = channel.received.values()
    assert image_type(content) == "image/png"
    with Image.open(BytesIO(content)) as image:
        assert image.width == 1200
        assert len(image.convert("RGB").getcolors(1 << 20) or ()) > 2, "it is not empty"


async def test_a_member_gets_a_chart_of_their_chat_alone(memory_store: InMemoryStore, charts: list[Any]) -> None:
    reporter = await spent(memory_store, "test:home", "test:far")
    for role, direct in ((Role.MEMBER, True), (Role.OWNER, False)):
        options = Options(role=role, tools=usage_feature(lambda: reporter).tools)
        async with running(InMemoryStore(), ScriptedModel(), options) as bench:
            assert await asked(bench, ",usage chart", direct=direct) == "This month 30.00 USD; 2 answers."
    for chart in charts:
        assert [panel.title[0] for panel in chart.panels] == ["By day (USD)", "By model (USD)"]
        assert b"test:" not in msgspec.json.encode(chart)


async def test_without_matplotlib_the_owner_gets_the_command_that_installs_it(
    memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bubbot.features.usage.chart.find_spec", lambda _: None)
    reporter = await spent(memory_store, "test:home")
    async with running(InMemoryStore(), ScriptedModel(), Options(tools=usage_feature(lambda: reporter).tools)) as bench:
        text = await asked(bench, ",usage chart")
        assert f"`{sys.executable} -m pip install --no-deps --require-hashes -r " in text
        assert text.endswith(f"{DRAWING_FILE.with_name('requirements.txt')}`")
        text = await asked(bench, ",usage chart", direct=False)
        assert "pip" not in text
        assert "Its owner can install it" in text


async def test_where_nothing_was_spent_nothing_is_drawn(memory_store: InMemoryStore) -> None:
    channel = KeptChannel()
    reporter = await spent(memory_store)
    async with running(
        InMemoryStore(), ScriptedModel(), Options(tools=usage_feature(lambda: reporter).tools), channel=channel
    ) as bench:
        assert await asked(bench, ",usage chart") == "This month no model was asked."
    assert channel.received == {}


async def test_a_child_that_fails_is_named_and_one_that_is_stopped_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory_store: InMemoryStore
) -> None:
    program = tmp_path / "draw.py"
    program.write_text("raise SystemExit('no paint')")
    monkeypatch.setattr("bubbot.features.usage.chart.DRAWING_FILE", program)
    reporter = await spent(memory_store, "test:home")
    async with running(InMemoryStore(), ScriptedModel(), Options(tools=usage_feature(lambda: reporter).tools)) as bench:
        assert await asked(bench, ",usage chart") == "The chart could not be drawn: no paint"
    # It says by a named pipe that it runs; the end of the pipe is its own end.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program.write_text(
        f"file = open({str(pipe)!r}, 'w'); print(1, file=file, flush=True); import time; time.sleep(600)"
    )
    feature = Options(tools=usage_feature(lambda: reporter).tools)
    async with running(InMemoryStore(), ScriptedModel(), feature) as bench, asyncio.timeout(DRAWING_SECONDS):
        await bench.post(",usage chart")
        with await asyncio.to_thread(pipe.open) as said:
            assert await asyncio.to_thread(said.readline) == "1\n"
            await bench.kill()
            assert await asyncio.to_thread(said.read) == ""
