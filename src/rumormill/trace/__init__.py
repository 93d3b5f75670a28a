"""Recording, reading and judging traces: recorder, file formats, ledger, metrics.

Runtimes record what their machines trace; everything else here reads that one stream of events.
"""
