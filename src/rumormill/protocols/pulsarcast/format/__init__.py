"""What topics, events and messages are as bytes: descriptors, CIDs, dates, RPCs, signatures."""
