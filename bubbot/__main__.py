"""`python -m bubbot`."""

from __future__ import annotations

import sys

from bubbot.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
