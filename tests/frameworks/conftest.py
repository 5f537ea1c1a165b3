"""Tests that need a framework: `make test-frameworks` runs them in an environment that has all of them."""
