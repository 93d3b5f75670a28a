"""What a long-lived node offers beside its API: control socket, metrics page, Flight door."""
