"""The process that is killed while it seals: reads a store and deletes its segments, for ever.

Arguments: the store's directory, its number of events, the rows of a segment.
"""

import os
import shutil
import sys
from pathlib import Path

from rumormill.log import EventLog, StoreConfig
from rumormill.log.arrow import read_batches


def main() -> None:
    """Run until killed; a line for each batch."""
    home, events, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with EventLog(home, StoreConfig(segment_rows=rows), read_only=True) as log:
        while True:
            for _ in read_batches(log, "news", 0, events, batch_rows=rows // 2):
                os.write(1, b"batch\n")
            shutil.rmtree(home / "segments")


if __name__ == "__main__":
    main()
