"""`python -m scribengin.cli` is the command `scribengin`."""

from scribengin.cli.main import main

main()
