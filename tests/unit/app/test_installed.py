"""Features and context strategies of installed packages: which are used, and why others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.installed import load_features, load_strategies
from bubbot.app.panels import load_panels
from bubbot.errors import ConfigError
from bubbot.settings.loader import Settings
from tests.installed import installed

MODULE = """
from bubbot.tape.fact import Fact
from pydantic import Field, SecretStr
from bubbot.feature import Feature, FeatureFactory
from bubbot.ports.checks import Check
from bubbot.panel import Panel
from bubbot.tape.boundary import SharedTape
from bubbot.ports.settings import SettingsSection
from bubbot.runtime.context.strategy import ContextStrategy, ModelContext
from bubbot.tape.references import EntryId

class Needy(SettingsSection):
    key: int

class Faulty(SettingsSection):
    key: int = Field(default_factory=lambda: {}["key"])

class Noted(Fact):
    entry: EntryId

class Keyed(Fact):
    entries: dict[str, EntryId]

def build(kernel, settings):
    return Feature(name="good")

GOOD = FeatureFactory("good", build)
OTHER = FeatureFactory("other", build)
TAKEN = FeatureFactory("model", build)
OURS = FeatureFactory("why", build)
ODD = FeatureFactory("two-words", build)
NEEDY = FeatureFactory("needy", build, Needy)
LONE = FeatureFactory("lone", build, checks=Check("the lone", print))
MIXED = FeatureFactory("mixed", build, checks=[Check("the mixed", print), print])
SETTLESS = FeatureFactory("settless", build, dict)
FAULTY = FeatureFactory("faulty", build, Faulty)
LISTED = FeatureFactory("listed", build, events=["listed/noted"])
CLASSLESS = FeatureFactory("classless", build, events={"classless/noted": {"entry": int}})
KEYED = FeatureFactory("keyed", build, events={"keyed/noted": Keyed})
READER = Panel("p", "P", "deployment", print, "tests.trace:links.html", (SharedTape("bubbot/own_tapes/"), SharedTape("bubbot/memory/")))
OWN = Panel("p", "P", "deployment", print, "tests.trace:links.html", (SharedTape("bubbot/showing"), SharedTape("bubbot/showing/more")))
UNDRAWN = FeatureFactory("undrawn", build, panels=[Panel("p", "P", "deployment", print, "tests.trace:none.html")])
NAMED = FeatureFactory("named", build, panels=["memory"])
SHARING = FeatureFactory("sharing", build, panels=[READER])
SHOWING = FeatureFactory("showing", build, panels=[OWN])
FIRST = FeatureFactory("first", build, events={"team/noted": Noted})
SECOND = FeatureFactory("second", build, events={"team/noted": Noted})
CORRECTOR = FeatureFactory("corrector", build, events={"correction": Noted})
NEWEST = ContextStrategy("newest", lambda source: ModelContext(()), 2)
"""


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, **points: str) -> None:
    lines = "".join(f"{name.replace('__', '-')} = planted_package:{member}\n" for name, member in points.items())
    installed(folder, "planted", "1.0", f"[{group}]\n{lines}")
    (folder / "planted_package.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)


def test_features_that_cannot_be_used_are_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"good": "GOOD", "wrong": "OTHER", "model": "TAKEN", "why": "OURS", "two__words": "ODD"}
    names |= {"needy": "NEEDY", "settless": "SETTLESS", "faulty": "FAULTY", "lone": "LONE", "mixed": "MIXED"}
    plant(tmp_path, monkeypatch, "bubbot.features", **names, text="__name__")
    found = load_features()
    assert [factory.name for factory in found.factories] == ["good"]
    assert {name: reason.partition("bubbot.features ")[2] for name, reason in found.broken.items()} == {
        "lone": "has checks that are no sequence of Check.",
        "mixed": "has checks that are no sequence of Check.",
        "model": "has a name that bubbot uses itself.",
        "needy": "has a setting without a default.",
        "settless": "has settings that are no SettingsSection.",
        "faulty": "has settings that fail: KeyError: 'key'",
        "text": "is str, not a FeatureFactory.",
        "two-words": "needs another name: small letters, digits and single underscores.",
        "why": "has a name that bubbot uses itself.",
        "wrong": "makes a feature with another name: 'other'.",
    }
    assert found.sections() == dict.fromkeys(found.broken)


def test_events_that_cannot_be_read_or_are_those_of_others_leave_a_feature_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("listed", "classless", "keyed", "first", "second", "corrector")
    plant(tmp_path, monkeypatch, "bubbot.features", **{name: name.upper() for name in names})
    found = load_features()
    assert [factory.name for factory in found.factories] == ["first"]
    assert {name: reason.partition("bubbot.features")[2] for name, reason in found.broken.items()} == {
        "listed": " has events that are list, not payload models by name.",
        "classless": " has the event 'classless/noted', whose references cannot be read: unhashable type: 'dict'.",
        "keyed": " has the event 'keyed/noted', whose references cannot be read: entries holds references under names of its "
        "own, to which no path leads.",
        "second": ": the references of team/noted are declared twice: give one event another name.",
        "corrector": ": the references of correction are declared twice: give one event another name.",
    }
    assert found.references.of_event("team/noted").entries == ("entry",)


def test_panels_that_are_none_or_have_no_template_or_share_the_tapes_of_others_leave_a_feature_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("named", "undrawn", "sharing", "showing")
    plant(tmp_path, monkeypatch, "bubbot.features", **{name: name.upper() for name in names})
    found = load_features()
    assert [factory.name for factory in found.factories] == ["showing"]
    assert found.broken["named"].endswith("has panels that are no sequence of Panel.")
    assert found.broken["undrawn"].endswith("has a panel whose template 'tests.trace:none.html' does not exist.")
    assert (
        "shares the tape 'bubbot/own_tapes/': it may share those below bubbot/sharing only" in found.broken["sharing"]
    )
    assert [each.feature for each in load_panels(Settings(), found)][-1] == "showing"


def test_a_strategy_is_loaded_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, "bubbot.context", newest="NEWEST", broken="NOBODY")
    strategies = load_strategies()
    assert strategies.find("newest").version == 2
    assert strategies.find("from:phase").name == "from"
    with pytest.raises(ConfigError, match="could not be loaded: AttributeError"):
        strategies.find("broken")
    with pytest.raises(ConfigError, match=r"it is written 'newest'\."):
        strategies.find("newest:2")
    with pytest.raises(ConfigError, match="did you mean 'newest'"):
        strategies.find("newst")
