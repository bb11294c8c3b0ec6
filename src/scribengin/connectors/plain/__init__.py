"""Places that only accept rows and cannot report their contents: the common parts of their sinks. See `sink.PlainSink`."""
