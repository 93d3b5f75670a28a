"""GossipSub 1.0 to 1.3: the mesh router and the parts that it stands on."""
