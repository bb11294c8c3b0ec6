"""Tests of flows: runs the flow over the rows of a test, in a scratch folder, and compares the output with the expected rows."""
