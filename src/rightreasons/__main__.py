"""`python -m rightreasons`."""

from rightreasons.cli import main

main()
