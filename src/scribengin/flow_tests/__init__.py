"""Tests of flows: the flow itself, over rows that a test gives, in a scratch folder; what came out compared with what was expected."""
