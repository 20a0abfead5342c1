"""Run the command line as ``python -m perfml``."""

from perfml.cli import main

main()
