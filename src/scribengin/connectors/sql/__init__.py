"""The common parts of sinks for databases with transactions; the connector of a database adds its statements. Not a type in flow files by
itself."""
