"""The questions R…: whether the ranks of one job agree. They join the ranks' files and are also asked after a fault."""
