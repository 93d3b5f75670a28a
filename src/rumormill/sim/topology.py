"""Topologies: which peers are linked, as a list of (dialler, listener) pairs of peer numbers.

The rules: no peer is linked to itself, no pair twice, and every generated network is connected.
Links are listed by their later peer, then by the earlier one: the order in which they become
possible when peers join by number. Degrees of `peers - 1` and more give the complete network.

A random regular network is drawn by pairing link ends at random; a pair that is a loop or exists
already is repaired by exchanging ends with a link drawn at random, which keeps all degrees. All
pairs of peers are equally likely to be linked; that all networks are equally likely is not claimed.
A network that is not connected is drawn again; from degree 3 on that is rare. Degree 2 is one
random ring. Degrees above half of the peers are drawn as the missing links. When peers × degree is
odd, one peer has one link less.
"""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rumormill.core.config import require
from rumormill.core.errors import ConfigError
from rumormill.sim.scenario import Topology

MOST_LINKS: Final = 2_000_000
"""Most links of a network; our choice: 10,000 peers with 400 links each."""

LARGEST_FILE: Final = 64 << 20
"""Largest edge list in bytes; our choice: room for `MOST_LINKS` lines of 32 bytes."""

_ATTEMPTS = 1000

Link = tuple[int, int]


def build_topology(topology: Topology, peers: int, rng: random.Random) -> list[Link]:
    """Return the links of a network of peers numbered from 0."""
    if topology.kind == "file":
        return _in_join_order(read_links(topology.path, peers))
    kind = topology.kind
    degree = peers - 1
    if kind in {"random-regular", "ring-random"}:
        degree = min(degree, topology.degree)
    elif kind != "complete":
        branching = {"star": peers, "self-formed": peers, "line": 1}.get(kind, topology.branching)
        return [(peer, (peer - 1) // branching) for peer in range(1, peers)]
    require(
        peers * degree // 2 <= MOST_LINKS,
        "topology",
        f"{peers} peers of degree {degree} exceed {MOST_LINKS} links, the most that is allowed",
    )
    if degree == peers - 1:
        links = _oriented(_all_pairs(peers), rng)
    elif kind == "random-regular":
        links = _oriented(random_regular(peers, degree, rng), rng)
    else:
        links = _ring_random(peers, degree, rng)
    return _in_join_order(links)


def random_regular(peers: int, degree: int, rng: random.Random) -> list[Link]:
    """Draw a connected simple network in which every peer has `degree` links.

    One peer has one link less when peers × degree is odd. Needs 2 <= degree < peers.
    """
    if degree == 2:
        ring = rng.sample(range(peers), peers)
        return [(ring[place - 1], ring[place]) for place in range(peers)]
    degrees = [degree] * peers
    if peers * degree % 2:
        degrees[rng.randrange(peers)] -= 1
    for _ in range(_ATTEMPTS):
        if degree > (peers - 1) // 2:
            missing = _paired([peers - 1 - wanted for wanted in degrees], rng)
            links = None if missing is None else _complement(peers, missing)
        else:
            links = _paired(degrees, rng)
        if links is not None and is_connected(peers, links):
            return links
    raise ConfigError(f"topology.degree: no connected network of {peers} × {degree} was found")


def _paired(degrees: list[int], rng: random.Random) -> list[Link] | None:
    """Draw a simple network with these degrees, or nothing when repairs do not succeed."""
    peers = len(degrees)
    ends = [peer for peer, degree in enumerate(degrees) for _ in range(degree)]
    rng.shuffle(ends)
    links: list[Link] = []
    known: set[int] = set()  # only asked for membership, never iterated
    broken: list[Link] = []
    for place in range(0, len(ends) - 1, 2):
        one, other = ends[place], ends[place + 1]
        if one == other or _code(one, other, peers) in known:
            broken.append((one, other))
        else:
            known.add(_code(one, other, peers))
            links.append((one, other))
    if broken and not links:
        return None
    return links if all(_repaired(pair, links, known, peers, rng) for pair in broken) else None


def _repaired(
    loose: Link, links: list[Link], known: set[int], peers: int, rng: random.Random
) -> bool:
    """Link two loose ends by exchanging them with the ends of a link drawn at random."""
    one, other = loose
    for _ in range(_ATTEMPTS):
        place = rng.randrange(len(links))
        left, right = links[place] if rng.getrandbits(1) else links[place][::-1]
        first, second = _code(one, left, peers), _code(other, right, peers)
        loops = one == left or other == right
        if loops or first == second or first in known or second in known:
            continue
        known.discard(_code(left, right, peers))
        known.add(first)
        known.add(second)
        links[place] = (one, left)
        links.append((other, right))
        return True
    return False


def _code(one: int, other: int, peers: int) -> int:
    """One number for an unordered pair."""
    return one * peers + other if one < other else other * peers + one


def _complement(peers: int, missing: list[Link]) -> list[Link]:
    absent = {_code(one, other, peers) for one, other in missing}
    return [pair for pair in _all_pairs(peers) if _code(*pair, peers) not in absent]


def _all_pairs(peers: int) -> list[Link]:
    return [(one, other) for other in range(peers) for one in range(other)]


def _ring_random(peers: int, degree: int, rng: random.Random) -> list[Link]:
    """Every peer dials its successor; then peers in turn dial a random one until links suffice."""
    links = [(peer, (peer + 1) % peers) for peer in range(peers)]
    known = {_code(one, other, peers) for one, other in links}
    linked = [2] * peers
    turn = 0
    while len(links) < peers * degree // 2:
        dialler, turn = turn, (turn + 1) % peers
        if linked[dialler] == peers - 1:
            continue
        listener = rng.randrange(peers)
        while listener == dialler or _code(dialler, listener, peers) in known:
            listener = rng.randrange(peers)
        known.add(_code(dialler, listener, peers))
        linked[dialler] += 1
        linked[listener] += 1
        links.append((dialler, listener))
    return links


def _oriented(pairs: list[Link], rng: random.Random) -> list[Link]:
    """Draw who dials, so that every peer has links of both directions."""
    return [(one, other) if rng.getrandbits(1) else (other, one) for one, other in pairs]


def _in_join_order(links: list[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (max(link), min(link)))


def is_connected(peers: int, links: Iterable[Link]) -> bool:
    """Whether every peer reaches every other one."""
    neighbours: list[list[int]] = [[] for _ in range(peers)]
    for one, other in links:
        neighbours[one].append(other)
        neighbours[other].append(one)
    reached = bytearray(peers)
    reached[0] = 1
    waiting = [0]
    while waiting:
        for peer in neighbours[waiting.pop()]:
            if not reached[peer]:
                reached[peer] = 1
                waiting.append(peer)
    return all(reached)


def read_links(path: str, peers: int) -> list[Link]:
    """Read an edge list: `dialler listener` per line, separated by blanks or tabs.

    Empty lines and what follows a `#` do not count. The network need not be connected.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > LARGEST_FILE:
            raise ConfigError(f"topology.path: {path} has {size} bytes; at most {LARGEST_FILE}")
        with file.open(encoding="utf-8") as lines:
            return _parsed_links(lines, peers, path)
    except OSError as error:
        raise ConfigError(f"topology.path: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"topology.path: {path} is not UTF-8 text") from None


def _parsed_links(lines: Iterable[str], peers: int, path: str) -> list[Link]:
    links: list[Link] = []
    known: set[int] = set()  # only asked for membership, never iterated
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"topology.path: {path}, line {number}"
        if len(words) != 2 or not all(word.isascii() and word.isdecimal() for word in words):
            raise ConfigError(f"{where}: expected two peer numbers, got {line.strip()[:60]!r}")
        if any(len(word) > 9 or int(word) >= peers for word in words):
            raise ConfigError(f"{where}: peer numbers must be from 0 to {peers - 1}")
        link = int(words[0]), int(words[1])
        if link[0] == link[1] or _code(*link, peers) in known:
            raise ConfigError(f"{where}: a link to itself, or one that was listed before")
        if len(links) == MOST_LINKS:
            raise ConfigError(f"{where}: more than {MOST_LINKS} links")
        known.add(_code(*link, peers))
        links.append(link)
    return links
