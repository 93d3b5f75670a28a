"""Overlays and structures that protocols stand on: pure objects which a protocol's machine owns."""
