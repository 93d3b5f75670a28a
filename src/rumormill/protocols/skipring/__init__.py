"""The supervised skip ring (BuildSR): self-stabilising publish/subscribe under a supervisor."""
