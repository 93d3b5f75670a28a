"""The tree of a topic: who stands where in it, and how topics and events get into it and along."""
