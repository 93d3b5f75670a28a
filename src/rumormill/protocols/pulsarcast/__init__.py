"""Pulsarcast: content-addressed topics and events, spread over trees and kept as a Merkle DAG."""
