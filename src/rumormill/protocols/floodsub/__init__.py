"""FloodSub: every message to every connected subscriber. The simplest protocol of all."""
