"""Places that only take rows and cannot tell what stands there: what their sinks have in common. See `sink.PlainSink`."""
