"""What FloodSub and GossipSub share: libp2p's pub/sub layer under the router.

Who is subscribed to what, how a message is signed and identified, and the way of a message from
arrival to delivery. How messages are routed is left to the protocol on top.
"""
