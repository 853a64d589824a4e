"""`python -m headway` is the command `headway`."""

from __future__ import annotations

import sys

from headway.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
