"""The trees: which question comes after which, and the one engine that walks them."""
