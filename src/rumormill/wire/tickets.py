"""Tickets: what a person passes on so that others can join.

A ticket is one address with a peer id, or several with commas between them: the ways to one node,
or to several nodes of a network, of which any is enough. A name (`/dnsaddr/example.org`) stands for
the addresses that its DNS records list. Whatever the network says is read with the same limits.
"""

from typing import Final

from rumormill.core.errors import DecodeError
from rumormill.wire.multiaddr import Multiaddr

MAX_TICKET_ADDRESSES: Final = 32
"""Our choice: eight nodes with four addresses each."""

_MAX_TEXT_LENGTH: Final = 8192


def read_ticket(text: str) -> tuple[Multiaddr, ...]:
    """The addresses of a ticket; DecodeError says what is wrong with it."""
    if len(text) > _MAX_TEXT_LENGTH:
        raise DecodeError("bad-ticket", f"a ticket has at most {_MAX_TEXT_LENGTH} characters")
    addresses = tuple(dict.fromkeys(Multiaddr.parse(each.strip()) for each in text.split(",")))
    if len(addresses) > MAX_TICKET_ADDRESSES:
        raise DecodeError("bad-ticket", f"more than {MAX_TICKET_ADDRESSES} addresses")
    for address in addresses:
        named = address.peer_id is not None and address.endpoint is not None
        if not named and address.dnsaddr is None:
            raise DecodeError(
                "bad-ticket",
                f"{address} does not name a TCP address and a peer (/ip4/…/tcp/…/p2p/…)",
            )
    return addresses
