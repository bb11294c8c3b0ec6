"""A write-ahead log of frames: what an agent has read and no gateway has acknowledged survives a crash in it."""
