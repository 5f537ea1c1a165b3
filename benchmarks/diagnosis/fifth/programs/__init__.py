"""The programs of the fifth fleet."""
