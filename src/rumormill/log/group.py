"""A group: the changes of one transaction, which count only when it is committed."""

from rumormill.log.rows import MARK_EVERY, MAX_OFFSET, EventRow, TopicRow, row_bytes, seal_mark


class Group:
    """The changes of one transaction, kept aside until it is committed."""

    def __init__(self, topics: dict[str, TopicRow], next_id: int) -> None:
        self._topics = topics
        self._next_id = next_id
        self._loaded: dict[str, TopicRow] = {}
        self.changed: dict[str, TopicRow] = {}
        self.noted = False
        """Whether notes were written, with events or without."""
        self.marks: list[tuple[int, float, bytes]] = []
        self.encoded: dict[str, bytes] = {}

    def topic(self, name: str) -> TopicRow:
        """The topic's record, to be changed; a new one if there is none yet."""
        row = self._loaded.get(name)
        if row is None:
            known = self._topics.get(name)
            if known is not None:
                row = known.copy()
            else:
                row = TopicRow(self._next_id, name)
                self._next_id += 1
            self._loaded[name] = row
            self.encoded[name] = name.encode()
        return row

    def add(self, topic: TopicRow, row: EventRow) -> None:
        """Account for a row behind the topic's head."""
        offset = row[0] & MAX_OFFSET
        if offset % MARK_EVERY == 0 and offset:
            key, latest = row[0], topic.received_max
            self.marks.append((key, latest, seal_mark(key, latest)))
        self.changed[topic.name] = topic
        topic.next_offset = offset + 1
        topic.head_hash = row[11]
        topic.size += row_bytes(row)
        topic.received_max = max(row[7], topic.received_max)
