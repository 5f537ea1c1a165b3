"""The live views: a server that follows runs being written, and what it shares with the terminal's view."""
