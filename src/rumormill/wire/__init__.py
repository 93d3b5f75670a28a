"""Bytes between peers: bounded protobuf, declared messages, frames, keys and peer ids, addresses.

Nothing here does IO, reads a clock or draws random numbers, and nothing is built from a length or a
count that has not been checked; a `DecodeError` says what was wrong with bytes that a peer sent.
"""
