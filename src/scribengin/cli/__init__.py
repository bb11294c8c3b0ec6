"""The command line: the command `scribengin`."""
