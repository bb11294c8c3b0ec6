"""Observation of running flows: workers' reports on their tiers, metrics over time, and alerts. Pure, except for clocks."""
