"""How bytes become typed rows and rows become bytes. Knows schemas, blocks and Arrow; no folders, no Spark."""
