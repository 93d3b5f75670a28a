"""HyParView: a membership that survives the simultaneous crash of most of its peers."""
