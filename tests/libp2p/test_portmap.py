"""PCP, NAT-PMP and UPnP: what a router is asked, byte by byte, and what it may answer."""

import pytest

from rumormill.core.errors import DecodeError
from rumormill.libp2p import portmap
from rumormill.libp2p.portmap import Mapped, Service

NONCE = b"twelve bytes"
PLACE = "http://192.168.1.1:5000/root.xml"
SERVICE = Service(
    "urn:schemas-upnp-org:service:WANIPConnection:1", "http://192.168.1.1:5000/control"
)
DESCRIPTION = b"""<?xml version="1.0"?><root><device><serviceList>
<service><serviceType>urn:schemas-upnp-org:service:Layer3Forwarding:1</serviceType>
<controlURL>/forward</controlURL></service>
<service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>
<serviceId>x</serviceId><controlURL>/control</controlURL></service></serviceList></device></root>"""


def test_pcp_has_the_layout_of_rfc_6887() -> None:
    """60 bytes: version 2, MAP, lifetime, our address as IPv6, nonce, TCP, ports, any address."""
    request = portmap.pcp_request(NONCE, "192.168.1.7", 4001, 3600)
    own = "00000000000000000000ffffc0a80107"
    nothing = "00000000000000000000ffff00000000"
    assert request.hex() == (f"0201000000000e10{own}{NONCE.hex()}060000000fa10fa1{nothing}")
    answer = bytes.fromhex(
        f"0281000000000e1000000001{'00' * 12}{NONCE.hex()}060000000fa19c40"
        "00000000000000000000ffff05090001"
    )
    assert portmap.decode_pcp(answer, NONCE, 4001) == Mapped("5.9.0.1", 40000, 3600)
    for wrong in (
        answer[:-1],
        b"\x00" + answer[1:],
        answer[:3] + b"\x02" + answer[4:],
        answer.replace(NONCE, b"twelve bytez"),
    ):
        with pytest.raises(DecodeError):
            portmap.decode_pcp(wrong, NONCE, 4001)
    with pytest.raises(DecodeError, match="another question"):
        portmap.decode_pcp(answer, NONCE, 4002)


def test_nat_pmp_has_the_layout_of_rfc_6886() -> None:
    """12 bytes for a port, 2 for the address; a port is given back by asking for none."""
    assert portmap.pmp_address_request().hex() == "0000"
    assert portmap.pmp_request(4001, 3600).hex() == "000200000fa10fa100000e10"
    assert portmap.pmp_request(4001, 0).hex() == "000200000fa1000000000000"
    assert portmap.decode_pmp_address(bytes.fromhex("008000000000000105090001")) == "5.9.0.1"
    answer = bytes.fromhex("00820000000000010fa19c4000000e10")
    assert portmap.decode_pmp(answer, 4001) == Mapped("", 40000, 3600)
    for wrong in (b"", answer[:-1], answer[:3] + b"\x02" + answer[4:], b"\x02" + answer[1:]):
        with pytest.raises(DecodeError):
            portmap.decode_pmp(wrong, 4001)


def test_a_upnp_router_is_found_and_described() -> None:
    """The service that maps ports, and no other; calls name it."""
    found = b"HTTP/1.1 200 OK\r\nST: upnp\r\nLocation: " + PLACE.encode() + b"\r\n\r\n"
    assert portmap.decode_search(found, "192.168.1.1") == PLACE
    assert portmap.decode_description(DESCRIPTION, PLACE, "192.168.1.1") == SERVICE
    head, body = portmap.call(SERVICE, "DeletePortMapping", NewExternalPort=4001)
    assert head == f'SOAPAction: "{SERVICE.kind}#DeletePortMapping"'
    assert b"<NewExternalPort>4001</NewExternalPort></u:DeletePortMapping>" in body
    said = b"<a><NewExternalIPAddress>5.9.0.1</NewExternalIPAddress></a>"
    assert portmap.decode_external(said) == "5.9.0.1"
    assert portmap.decode_external(said.replace(b"5.9.0.1", b"999.9.0.1")) == ""


@pytest.mark.parametrize(
    "place",
    ["http://192.168.1.9:5000/x", "https://192.168.1.1:5000/x", "http://192.168.1.1/x",
     "http://192.168.1.1:99999/x", "file:///etc/passwd", "http://[::1/x"],
)  # fmt: skip
def test_a_router_cannot_send_us_elsewhere(place: str) -> None:
    """Neither by its answer nor by its description."""
    answer = b"HTTP/1.1 200 OK\r\nLocation: " + place.encode() + b"\r\n\r\n"
    with pytest.raises(DecodeError, match="elsewhere"):
        portmap.decode_search(answer, "192.168.1.1")
    described = DESCRIPTION.replace(b">/control<", b">" + place.encode() + b"<")
    with pytest.raises(DecodeError, match="elsewhere"):
        portmap.decode_description(described, PLACE, "192.168.1.1")


def test_a_description_that_goes_on_and_on_is_read_quickly() -> None:
    """Many services without an address, none of which is ours."""
    kind = "<service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>"
    with pytest.raises(DecodeError, match="maps no ports"):
        portmap.decode_description((kind * 700).encode(), PLACE, "192.168.1.1")
