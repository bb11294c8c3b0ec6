"""What is seen of flows while they run: what workers say of their tiers, how it went, what of it is an alarm. Pure, but for clocks."""
