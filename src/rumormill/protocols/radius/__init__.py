"""Radius gossip: subscriptions and publications each travel half-way, and meet."""
