"""One module a command; each has `command`, which `cli.main` loads when it is called."""
