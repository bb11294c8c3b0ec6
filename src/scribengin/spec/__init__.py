"""Reads a flow that a user wrote, in YAML or Python, into frozen values, with every Problem found in it."""
