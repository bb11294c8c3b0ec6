"""Compares random flows with the same flows divided into tiers: `python -m harness.cuts`."""
