"""Converts bytes to typed rows and rows to bytes. Knows schemas, blocks and Arrow, but no folders and no Spark."""
