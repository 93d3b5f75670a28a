"""`rumormill network`: the key of a private network, made and shown by its fingerprint."""

import argparse
import json
from pathlib import Path

from rumormill.node.identity import create_network, load_network


def run_network(options: argparse.Namespace) -> int:
    """Make a key file, or look at one."""
    path = Path(options.file or "swarm.key").expanduser().absolute()
    network = create_network(path) if options.action == "new" else load_network(path)
    assert network is not None
    if options.json:
        print(json.dumps({"file": str(path), "fingerprint": network.fingerprint}))
    else:
        print(f"{path}\nfingerprint: {network.fingerprint}")
    return 0
