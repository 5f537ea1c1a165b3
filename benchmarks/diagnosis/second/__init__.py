"""The second fleet: programs of other kinds, frozen before any limit of the diagnosis was changed for them."""
