"""Makes `python -m scribengin.cli` run the command `scribengin`."""

from scribengin.cli.main import main

main()
