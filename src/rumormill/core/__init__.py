"""What every protocol shares: inputs, effects, ids, timers, limits, trace events.

The rule of this package, of `protocols`, of `overlay` and of the machines in `wire`: no clock, no
socket, no thread, no global randomness. Time is an argument, randomness is injected, and the only
results are effects.
"""
