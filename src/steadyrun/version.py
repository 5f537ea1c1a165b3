"""The version, which rooms read without the public surface."""

__version__ = "0.1.0"
