"""Runs a whole flow in one process on this machine."""
