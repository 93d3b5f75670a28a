"""Schemas of what rumormill shares with libp2p, and the classes generated from them.

The schemas are the reference; the hot codecs beside this package read and write the same bytes
without building these classes. `tools/generate_protos.py` regenerates the modules.
"""
