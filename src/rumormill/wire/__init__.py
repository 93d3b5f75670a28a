"""What travels between peers: message types, codecs, and the pure machines of the connection.

A connection is a stack of machines that know nothing of each other: multistream agrees on noise,
noise encrypts and proves who is there, multistream (or noise itself) agrees on yamux, and on each
yamux stream multistream agrees once more on a protocol such as identify, ping or pubsub. Bytes go
into a machine with `receive`, come out with `data_to_send`, and what a finished negotiation has not
used is returned by `receive` for the machine above. None of them does IO, reads a clock or draws
random numbers; a PeerError from any of them means: close the connection.
"""
