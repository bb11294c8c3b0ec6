"""One module for each command. Each has functions that are click commands; `cli.main` imports a module when its command is called."""
