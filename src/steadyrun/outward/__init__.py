"""Out of the house while a run goes on: what was recorded sent to trackers, what was found sent to people."""
