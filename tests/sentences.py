"""Real sentences that are at hand wherever the tests run."""

from __future__ import annotations

import importlib
import re
from functools import cache

DOCUMENTED = """argparse asyncio calendar collections configparser csv datetime decimal difflib email.message fractions
functools heapq inspect itertools json logging mailbox pathlib pickle random re sched secrets shutil socket statistics
string struct subprocess tarfile tempfile textwrap threading tokenize unittest.case urllib.parse uuid zipfile"""


@cache
def sentences() -> tuple[str, ...]:
    """Documentation that is at hand: the sentences of the standard library's docstrings."""
    found: dict[str, None] = {}
    for name in DOCUMENTED.split():
        module = importlib.import_module(name)
        owners = [module, *[value for value in vars(module).values() if isinstance(value, type)]]
        for thing in [
            one for owner in owners for one in (owner, *vars(owner).values()) if callable(one) or one is owner
        ]:
            doc = getattr(thing, "__doc__", None)
            for part in re.split(r"(?<=[.!?:])\s+|\n\s*\n", doc) if isinstance(doc, str) else ():
                if len(re.findall(r"[^\W\d_]+", part)) >= 6:
                    found[" ".join(part.split())] = None
    return tuple(sorted(found))
