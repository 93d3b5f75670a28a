"""Which links are made, and which are let go."""

import random

from rumormill.core.ids import PeerId
from rumormill.core.machine import View
from rumormill.members.config import MembersConfig
from rumormill.members.links import Link, Links

CONFIG = MembersConfig()
GROUP = "203.0.113.0/24"


def links(count: int, *, outbound: bool = False, sought: bool = False) -> Links:
    made = Links(CONFIG, random.Random(1))
    for number in range(count):
        made.all[name(number)] = Link(outbound, sought, "", 0.0, member=True)
    return made


def name(number: int) -> PeerId:
    return number.to_bytes(4, "big")


def test_links_are_made_until_there_are_enough_and_we_have_dialled_a_part() -> None:
    assert links(0).missing() == CONFIG.wanted
    assert links(5, outbound=True, sought=True).missing() == CONFIG.wanted - 5
    assert links(CONFIG.wanted, outbound=True, sought=True).missing() == 0
    assert links(CONFIG.wanted).missing() == CONFIG.dialled, "others may have chosen them for us"
    assert links(CONFIG.most).missing() == 0, "and then no more"


def test_peers_of_other_kinds_do_not_count() -> None:
    """An attacker does not fill our links by being no member."""
    made = links(2, outbound=True, sought=True)
    for number in range(100, 200):
        made.all[name(number)] = Link(False, False, GROUP, 0.0, member=False)
    assert made.missing() == CONFIG.wanted - 2
    assert made.surplus(View, (), 100.0) == []


def test_a_group_of_addresses_has_room_for_its_share() -> None:
    made = links(0)
    for number in range(CONFIG.per_group):
        assert made.has_room(GROUP)
        made.all[name(number)] = Link(False, False, GROUP, 0.0, member=True)
    assert not made.has_room(GROUP)
    assert made.has_room("198.51.100.0/24")
    assert made.has_room("")


def test_what_was_opened_for_a_question_goes_when_there_are_enough_without_it() -> None:
    made = links(CONFIG.wanted, outbound=True, sought=True)
    made.all[b"asked"] = Link(True, False, "", 0.0, member=True)
    made.all[b"came"] = Link(False, False, "", 0.0, member=True)
    assert made.surplus(View, (), 100.0) == [b"asked"]


def test_beyond_the_most_the_useless_go_and_the_young_stay() -> None:
    made = links(CONFIG.most + 4)
    for number in range(4):
        made.all[name(number)].since = 99.0
    used = tuple(name(number) for number in range(4, CONFIG.most))
    view = View(links={"mesh": {"news": used}})
    going = made.surplus(lambda: view, (), 100.0)
    assert len(going) == 4
    assert not {*going} & {*used}
    assert not {*going} & {name(number) for number in range(4)}


def test_the_few_subscribers_of_a_topic_of_ours_are_kept() -> None:
    made = links(CONFIG.most + 4)
    rare = tuple(name(number) for number in range(CONFIG.topic_wanted))
    common = tuple(made.all)
    view = View(peers={"rare": rare, "common": common})
    assert not {*made.surplus(lambda: view, ("rare", "common"), 100.0)} & {*rare}
    assert {*made.surplus(lambda: view, ("common",), 100.0)} <= {*common}


def test_where_all_are_useful_those_go_that_came_by_themselves() -> None:
    made = links(CONFIG.most, outbound=True, sought=True)
    for number in range(100, 104):
        made.all[name(number)] = Link(False, False, "", 0.0, member=True)
    view = View(links={"mesh": {"news": tuple(made.all)}})
    assert sorted(made.surplus(lambda: view, (), 100.0)) == [
        name(number) for number in range(100, 104)
    ]


def test_the_protocol_is_asked_what_it_uses_only_if_somebody_may_go() -> None:
    """It tells of all its links and scores then, and each look would ask."""
    asked: list[None] = []

    def view() -> View:
        asked.append(None)
        return View()

    made = links(CONFIG.most, outbound=True, sought=True)
    assert made.surplus(view, (), 100.0) == []
    assert not asked
    made.all[b"one more"] = Link(False, False, "", 0.0, member=True)
    assert made.surplus(view, (), 100.0) == [b"one more"]
    assert len(asked) == 1
