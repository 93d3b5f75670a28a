"""Records on disk: what we hold for others and published ourselves outlives a restart.

The store of records says what has changed, and that is what is written: as an effect, like all that
a machine wants kept. After a start everything is read back, piece by piece, and judged as if a peer
had brought it: what its key contradicts, what is too long or one too many is refused, counted, and
removed from the disk. What went out of date while we were away gets time to be put again, because
all of its holders may have been away.
"""

from typing import Final

from rumormill.core import trace
from rumormill.core.effects import Effects, KeepNote, Load, Records
from rumormill.core.event import KeptRecord
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Loaded
from rumormill.core.randomness import Randomness
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.stores import OWN_FULL, RECORD_AGE, Held, RecordStore
from rumormill.overlay.kademlia.validators import Validators

LOAD: Final = 0
"""The number of our reads; machines that own a Kademlia count theirs from one."""

BAD_RECORD = "kad-bad-kept-record"


class RecordKeeper:
    """Between the store of records and the disk."""

    def __init__(
        self,
        peer: PeerId,
        config: KademliaConfig,
        records: RecordStore,
        validators: Validators,
        randomness: Randomness,
    ) -> None:
        self._peer = peer
        self._config = config
        self._records = records
        self._validators = validators
        self._randomness = randomness

    def start(self, effects: Effects) -> None:
        """Read what is on disk."""
        effects.append(Load(LOAD, "", Records()))

    def keep_changes(self, effects: Effects) -> None:
        """Have the disk follow the store."""
        records = self._records
        for key in records.changed:
            own = records.own(key)
            held = own or records.held(key)
            if held is None:
                effects.append(KeepNote(KeptRecord(key)))
                continue
            held.written = held.received
            kept = KeptRecord(
                key, held.value, held.proof, held.received, own is not None, held.source
            )
            effects.append(KeepNote(kept))
        records.changed.clear()

    def on_loaded(self, loaded: Loaded, now: float, effects: Effects) -> None:
        """Take a piece of what is on disk, and ask for the next."""
        if loaded.number != LOAD:
            return
        for record in loaded.records:
            refused = self._take(record, now)
            if refused:
                effects.append(trace.Refuse(self._peer, refused))
                effects.append(KeepNote(KeptRecord(record.key)))
        if loaded.more and loaded.records:
            effects.append(Load(LOAD, "", Records(loaded.records[-1].key)))

    def _take(self, record: KeptRecord, now: float) -> str:
        """Take one record back; return why not, or an empty string."""
        key, value, records = record.key, record.value, self._records
        if records.own(key) is not None or records.held(key) is not None:
            return ""  # it came again meanwhile
        limits = self._config.limits
        if (
            value is None
            or len(key) > limits.key_bytes
            or len(value) > limits.value_bytes
            or len(record.proof) > limits.proof_bytes
            or self._validators.refusal(key, value)
        ):
            return BAD_RECORD
        since = min(record.since, now)
        held = Held(key, value, since, now, record.proof, record.source, since)
        if record.own:
            if records.counts["own"] >= self._config.own_records:
                return OWN_FULL
            held.due = max(now, since + self._config.republish_interval)
            records.publish(held)
            records.changed.pop(key, None)
            return ""
        interval = self._config.replicate_interval
        if interval:
            held.due = now + interval * self._randomness.random()
            held.received = max(since, now - RECORD_AGE + 2 * interval)
        elif now - since > RECORD_AGE:
            records.changed[key] = None
            return ""
        refused = records.hold(held)
        records.changed.pop(key, None)
        return refused
