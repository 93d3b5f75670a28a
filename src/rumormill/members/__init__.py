"""Members: a network that forms itself from one ticket, under every protocol. Pure."""
