"""The common parts of sinks into places that only accept rows and cannot report their contents. See `sink.PlainSink`."""
