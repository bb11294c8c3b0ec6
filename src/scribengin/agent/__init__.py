"""An edge collector: reads files, commands and sockets of its host, keeps records in a write-ahead log, and sends them to gateways."""
