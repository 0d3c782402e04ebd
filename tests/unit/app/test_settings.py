"""The settings with those of bubbot's own features."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError


def test_a_strategy_that_nobody_has_is_refused_with_its_origin_and_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[context]\nselector = 'windw'\n")
    with pytest.raises(ConfigError, match=r"config\.toml: \[context\] selector is 'windw', .*did you mean 'window'\?"):
        load(home=tmp_path)
