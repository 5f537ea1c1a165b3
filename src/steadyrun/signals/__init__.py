"""Quantities computed from recorded series. A signal measures; it knows no threshold."""
