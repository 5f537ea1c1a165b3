"""`python -m steadyrun`."""

from steadyrun.cli import main

main()
