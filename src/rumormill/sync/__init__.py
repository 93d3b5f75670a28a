"""Sync: every subscriber gets every event in the end, whatever protocol spreads it. Pure."""
