"""`python -m rumormill` is the command `rumormill`."""

import sys

from rumormill.cli import main

if __name__ == "__main__":
    sys.exit(main())
