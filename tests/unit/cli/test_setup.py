"""The names of sessions on the command line."""

from __future__ import annotations

import pytest

from bubbot.cli.setup import session_id
from bubbot.errors import ConfigError


def test_a_name_has_a_limit_that_the_error_names() -> None:
    assert session_id("x" * 200) == f"stdin:{'x' * 200}"
    with pytest.raises(ConfigError, match="201 characters: use 200 at most"):
        session_id(f"stdin:{'x' * 201}")
