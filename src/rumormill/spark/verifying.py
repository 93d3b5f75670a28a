"""Silver: stored events checked again, each by the rules of its own protocol.

A row's id is computed anew from what it says, its signature is checked against its author, and the
links of a topic's events are followed: which parents are not there, which events none follows. The
rule: a third party needs nothing but the row. What does not hold is named in `fault` and takes no
part in the graph of its topic, so that nobody can hang something on another's history.

FloodSub and GossipSub name a message by author and sequence number, or by its content where it is
unsigned; radius gossip by author and time; the skip ring by the hash of what was signed; Pulsarcast
by the CID of the event, which its proof rebuilds.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rumormill.core.errors import DecodeError, PeerError
from rumormill.core.event import Event
from rumormill.node.identity import SignatureVerifier
from rumormill.protocols.pubsub.codec import from_event as from_pubsub
from rumormill.protocols.pubsub.codec import signing_payload
from rumormill.protocols.pubsub.message_ids import NAMINGS, content_hash
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.history.graph import HistoryVerifier
from rumormill.protocols.radius.messages import from_event as from_radius
from rumormill.protocols.radius.messages import is_signed
from rumormill.protocols.skipring import envelope
from rumormill.spark.tables import ddl

VALID: Final = "valid"
ABSENT: Final = "absent"
INVALID: Final = "invalid"

WRONG_ID: Final = "wrong-id"
BAD_SIGNATURE: Final = "bad-signature"
BAD_PROOF: Final = "bad-proof"
UNKNOWN_PROTOCOL: Final = "unknown-protocol"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Whether an event's id is its own, what its signature is worth, and what is wrong."""

    id_valid: bool
    signature: str
    fault: str | None = None


def _verdict(id_valid: bool, signature: str) -> Verdict:
    if not id_valid:
        return Verdict(id_valid, signature, WRONG_ID)
    return Verdict(id_valid, signature, BAD_SIGNATURE if signature == INVALID else None)


def _check_pubsub(event: Event, verifier: SignatureVerifier) -> Verdict:
    if not event.proof:
        named = event.id == content_hash(event.topic, event.data)
        return _verdict(named, INVALID if event.author else ABSENT)
    message = from_pubsub(event)
    named = event.id == content_hash(event.topic, event.data)
    named = named or any(event.id == name(message) for name in NAMINGS.values())
    holds = verifier.verify(event.author, message.key, signing_payload(message), message.signature)
    return _verdict(named, VALID if holds else INVALID)


def _check_radius(event: Event, verifier: SignatureVerifier) -> Verdict:
    publication = from_radius(event)
    holds = is_signed(publication, verifier)
    return _verdict(event.id == publication.id, VALID if holds else INVALID)


def _check_skipring(event: Event, verifier: SignatureVerifier) -> Verdict:
    publication = envelope.from_event(event)
    unsigned = envelope.unsigned_fields(publication)
    named = bool(event.id) and envelope.name_of(unsigned, 8 * len(event.id)) == event.id
    holds = verifier.verify(
        event.author, publication.key, envelope.SIGN_PREFIX + unsigned, publication.signature
    )
    return _verdict(named, VALID if holds else INVALID)


def _check_pulsarcast(event: Event, verifier: SignatureVerifier) -> Verdict:
    history = HistoryVerifier(cids.parse(event.topic), verifier)
    fault = history.check(event)
    if fault is None:
        return Verdict(True, ABSENT if history.report().unsigned else VALID)
    return Verdict(fault != "wrong-cid", INVALID, fault)


_CHECKS: Final[dict[str, Callable[[Event, SignatureVerifier], Verdict]]] = {
    "floodsub": _check_pubsub,
    "gossipsub": _check_pubsub,
    "radius": _check_radius,
    "skipring": _check_skipring,
    "pulsarcast": _check_pulsarcast,
}


def verify_event(protocol: str, event: Event, verifier: SignatureVerifier) -> Verdict:
    """Check one event by its protocol's rules; whatever it holds, there is a verdict."""
    check = _CHECKS.get(protocol)
    if check is None:
        return Verdict(False, INVALID, UNKNOWN_PROTOCOL)
    try:
        return check(event, verifier)
    except DecodeError as error:
        return Verdict(False, INVALID, error.reason)
    except PeerError:
        return Verdict(False, INVALID, BAD_PROOF)


SCHEMA: Final = ddl("events_verified").partition(", `missing_parents`")[0]
"""Of verdicts, before links are followed."""


def verify(events: DataFrame) -> DataFrame:
    """Check every event; rows are independent, so this holds for streams as well."""
    return events.mapInArrow(_verify_batches, SCHEMA)


def _verify_batches(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute as pc  # noqa: PLC0415

    verifier = SignatureVerifier()
    kept = ("run", "protocol", "topic", "offset", "id", "author")
    for batch in batches:
        payloads = pc.coalesce(batch.column("payload"), batch.column("value"))
        names = ("protocol", "topic", "author", "id", "parents", "proof")
        columns = [batch.column(name).to_pylist() for name in names]
        created = pc.cast(batch.column("created"), pa.int64()).to_pylist()
        found = [
            verify_event(
                protocol,
                Event(topic, data, author, name, tuple(parents), _seconds(time), proof),
                verifier,
            )
            for protocol, topic, author, name, parents, proof, data, time in zip(
                *columns, payloads.to_pylist(), created, strict=True
            )
        ]
        arrays = [
            *[batch.column(name) for name in kept],
            pc.binary_length(payloads).cast(pa.int64()),
            *[batch.column(name) for name in ("created", "received", "parents")],
            pa.array([each.id_valid for each in found], pa.bool_()),
            pa.array([each.signature for each in found], pa.string()),
            pa.array([each.fault for each in found], pa.string()),
        ]
        labels = [*kept, "bytes", "created", "received", "parents", "id_valid", "signature"]
        yield pa.RecordBatch.from_arrays(arrays, [*labels, "fault"])


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1_000_000


def link(verified: DataFrame) -> DataFrame:
    """Follow the links inside each topic: parents that are missing, followers, ends."""
    key = ["run", "topic"]
    sound = verified.where("fault IS NULL")
    links = sound.select(*key, "id", f.explode("parents").alias("parent"))
    followers = links.groupBy(*key, "parent").agg(f.count("*").alias("children"))
    there = sound.select(*key, f.col("id").alias("parent"), f.lit(True).alias("there"))
    missing = (
        links.join(there, [*key, "parent"], "left")
        .where("there IS NULL")
        .groupBy(*key, "id")
        .agg(f.sort_array(f.collect_set("parent")).alias("missing_parents"))
    )
    none = f.array().cast("array<binary>")
    holds = f.col("fault").isNull()
    return (
        verified.join(followers.withColumnRenamed("parent", "id"), [*key, "id"], "left")
        .join(missing, [*key, "id"], "left")
        .withColumn("children", f.when(holds, f.coalesce("children", f.lit(0))).otherwise(0))
        .withColumn(
            "missing_parents", f.when(holds, f.coalesce("missing_parents", none)).otherwise(none)
        )
        .withColumn("is_root", holds & (f.size("parents") == 0))
        .withColumn("is_head", holds & (f.col("children") == 0))
    )
