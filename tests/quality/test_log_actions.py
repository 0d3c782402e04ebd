"""Every log record of ours has an action: what an operator searches and counts by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
ACTION = re.compile(r"[a-z_]+(\.[a-z_]+)*")
LOGS = re.compile(rf"\.({'|'.join(sorted(LEVELS))})\(")
PASSED_ON = {
    "bubbot/features/access/service.py: event.replace('/', '.')",  # access.audit_granted and its kin
    "bubbot/features/budget/budget.py: name",  # the name of the event: budget/warned, budget/unpriced, budget/outage
}
"""Actions that are values: where, and which."""


def _calls(code: str) -> Iterator[ast.Call]:
    """Calls such as `log.info(…)`, and `logging.getLogger(…).info(…)`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            of = ast.unparse(node.func.value)
            if of in ("log", "logger", "logging", "_log") or of.startswith("logging.getLogger("):
                yield node


def _action(call: ast.Call) -> ast.expr | None:
    """The value of `action` in the call's `extra`."""
    extra = next((one.value for one in call.keywords if one.arg == "extra"), None)
    if not isinstance(extra, ast.Dict):
        return None
    pairs = zip(extra.keys, extra.values, strict=True)
    return next((value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "action"), None)


def _wrong(place: str, code: str) -> Iterator[str]:
    if not LOGS.search(code):
        return  # most files do not log, and parsing takes its time
    for call in _calls(code):
        action = _action(call)
        if isinstance(action, ast.Constant):
            if not ACTION.fullmatch(str(action.value)):
                yield f"{place}:{call.lineno}: {action.value!r} is no name of an action"
        elif action is None or f"{place}: {ast.unparse(action)}" not in PASSED_ON:
            yield f"{place}:{call.lineno}: no action"


def test_every_record_has_an_action() -> None:
    found = [
        wrong
        for package in ("bubbot", "channels")
        for path in sorted((ROOT / package).rglob("*.py"))
        for wrong in _wrong(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "fine"),
    [
        ("log.info('x', extra={'action': 'turn.start'})", True),
        ("log.info('x')", False),
        ("log.info('x', extra={'count': 1})", False),
        ("log.info('x', extra={'action': 'Turn started'})", False),
        ("log.info('x', extra={'action': name})", False),
        ("logging.getLogger('x').debug('x')", False),
        ("other.info('x')", True),
    ],
)
def test_the_check_sees_what_it_should(code: str, *, fine: bool) -> None:
    wrong = list(_wrong("x.py", code))
    assert bool(wrong) is not fine
