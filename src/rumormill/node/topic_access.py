"""Who may write and read in topics: their keys and policies, around the log and the machine.

What is published in a topic with keys is encrypted before the machine sees it, so that the log, the
wire, relays and copies of the log have ciphertext; it is decrypted when it is handed out. What
peers bring is judged here before the application's validators, by every node that has the key or
the policy. The rules: nothing in clear, forged or by an outsider is taken, and who brings it pays;
what cannot be read is never handed out as if it were data. Each of it is counted under a reason.

An event under a key that this node does not have (yet) is kept and passed on all the same: it can
be read when the key comes, and a node needs no key to relay.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from rumormill.core import trace
from rumormill.core.errors import ConfigError, DecodeError, LocalError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.node.arguments import checked
from rumormill.node.identity import load_policy, load_topic_keys
from rumormill.node.payloads import unwrapped
from rumormill.node.policy import NOT_A_PUBLISHER, Policy
from rumormill.node.requesting import REPLIES
from rumormill.wire import keys
from rumormill.wire.topic_cipher import MARK, NO_TOPIC_KEY, NONCE_BYTES, TopicKeys, is_encrypted

_log = logging.getLogger(__name__)

_MOST_COMPLAINTS: Final = 256
"""Our choice: topics and reasons that the log names; all of them are counted."""


class TopicAccess:
    """The topics of a node that have keys or a policy."""

    def __init__(
        self,
        topic_keys: Mapping[Topic, str | Path] | None = None,
        policies: Sequence[str | Path] = (),
    ) -> None:
        """Name the files; they are read when the node starts, and by `reload`."""
        self.record: Callable[[trace.TracePayload], None] = lambda _: None
        """Traces a refusal."""
        self.changed: Callable[[], None] = lambda: None
        """Hears that there are other keys or policies."""
        self._key_files = dict(topic_keys or {})
        self._policy_files = dict.fromkeys(policies)
        self._keys: dict[Topic, TopicKeys] = {}
        self._policies: dict[Topic, Policy] = {}
        self._own: PeerId = b""
        self._proven = True
        self._complained: dict[tuple[Topic, str], None] = {}

    def load(self, own: PeerId, *, proven: bool) -> None:
        """Read all files, for this peer; `proven` says whether all events name their author."""
        self._own, self._proven = own, proven
        self.reload()

    def reload(self) -> None:
        """Read all files again: keys as they are there, of policies the later versions. If one
        cannot be used everything stays as it is."""
        self.use(self._key_files, self._policy_files)

    @checked
    def set_keys(self, topic: Topic, path: str | Path | None) -> None:
        """Read a topic's key file and use it from now on; None: the topic has no keys."""
        others = {each: file for each, file in self._key_files.items() if each != topic}
        self.use(others if path is None else {**others, topic: path}, self._policy_files)

    @checked
    def add_policy(self, path: str | Path) -> None:
        """Read a policy and follow it from now on, unless a later version is followed already."""
        self.use(self._key_files, [*self._policy_files, path])

    def use(
        self, key_files: Mapping[Topic, str | Path], policy_files: Iterable[str | Path]
    ) -> None:
        """Use these files, or none of them; a policy that was followed stays."""
        key_files, policy_files = dict(key_files), dict.fromkeys(policy_files)
        if key_files or policy_files:
            self._check_proven()
        topic_keys = {topic: load_topic_keys(Path(file)) for topic, file in key_files.items()}
        policies = dict(self._policies)
        for policy in [load_policy(Path(file)) for file in policy_files]:
            known = policies.get(policy.topic)
            if known is None or policy.replaces(known):
                policies[policy.topic] = policy
        self._key_files, self._policy_files = key_files, policy_files
        self._keys, self._policies = topic_keys, policies
        self.changed()

    def key_ids(self) -> dict[Topic, tuple[str, ...]]:
        """What the keys of encrypted topics are called, those that encrypt first."""
        return {topic: topic_keys.ids for topic, topic_keys in self._keys.items()}

    def rules(self) -> dict[Topic, bytes]:
        """What the rule of each topic is told apart by: its policy, and which keys it has."""
        return {
            topic: hashlib.blake2b(repr((policy, keys)).encode(), digest_size=16).digest()
            for topic in {**self._keys, **self._policies}
            for policy, keys in [(self._policies.get(topic), self._keys.get(topic))]
        }

    def _check_proven(self) -> None:
        if not self._proven:
            raise ConfigError(
                "topic_keys, policies: events prove no author under these parameters, and nothing"
                " could be bound to one"
            )

    def _keys_of(self, topic: Topic) -> TopicKeys | None:
        """The keys of a topic. Those of its requests are those of their replies, unless these have
        their own: what is asked in secret is not answered in clear."""
        while topic not in self._keys and topic.endswith(REPLIES):
            topic = topic.removesuffix(REPLIES)
        return self._keys.get(topic)

    # What we say.

    def prepared(self, topic: Topic, data: bytes) -> bytes:
        """What goes to the machine for a publication of ours; `LocalError` if it may not."""
        if not (self._keys or self._policies or data.startswith(MARK)):  # most nodes, all events
            return data
        policy = self._policies.get(topic)
        if policy is not None and self._own not in policy.publishers:
            raise LocalError(
                f"the policy of topic {topic!r}, version {policy.version} by"
                f" {keys.PeerId(policy.owner)}, does not let this node publish"
            )
        topic_keys = self._keys_of(topic)
        if topic_keys is not None:
            return topic_keys.encrypt(data, topic, self._own, secrets.token_bytes(NONCE_BYTES))
        if is_encrypted(data):
            raise LocalError(
                f"data that begins like an encrypted payload, in topic {topic!r}, which has no key"
                " here: nobody would be handed it"
            )
        return data

    # What others say.

    def admits(self, event: Event, peer: PeerId) -> bool:
        """Whether an event that a peer brings may be taken, as far as keys and policies go."""
        if not self._keys and not self._policies:  # most nodes, for every event
            return True
        reason = self._fault(event)
        if reason:
            self.record(trace.Refuse(peer, reason, event.topic))
        return not reason

    def _fault(self, event: Event) -> str:
        topic = event.topic
        policy = self._policies.get(topic)
        if policy is not None and event.author not in policy.publishers:
            return NOT_A_PUBLISHER
        if self._keys_of(topic) is None:
            return ""
        reason = self._read(event)[1]
        return "" if reason == NO_TOPIC_KEY else reason

    def _read(self, event: Event) -> tuple[Event, str]:
        """An event in clear; or as it is, and why it cannot be read."""
        topic_keys = self._keys_of(event.topic)
        if topic_keys is None:
            return event, NO_TOPIC_KEY if is_encrypted(event.data) else ""
        try:
            data = topic_keys.decrypt(event.data, event.topic, event.author)
        except DecodeError as error:
            return event, error.reason
        return msgspec.structs.replace(event, data=data), ""

    def shown(self, event: Event) -> Event:
        """An event as a validator sees it: in clear if it can be read, else as it travels."""
        return unwrapped(self._read(event)[0])

    def opened(self, event: Event) -> Event | None:
        """An event as it is handed out; None, counted, if it cannot be read."""
        if not self._keys and not event.data.startswith(MARK):  # most nodes, for every event
            return event
        found, reason = self._read(event)
        if not reason:
            return unwrapped(found)
        self.record(trace.UndeliverableMessage(event.id, event.topic, reason))
        complaint = (event.topic, reason)
        if complaint not in self._complained and len(self._complained) < _MOST_COMPLAINTS:
            self._complained[complaint] = None
            _log.warning("events of topic %r cannot be read, and are left out: %s", *complaint)
        return None
