"""What travels between peers: message types, codecs, and the pure machines of the connection."""
