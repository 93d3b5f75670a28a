"""The virtual runtime: protocols in virtual time over a virtual network, decided by one seed."""
