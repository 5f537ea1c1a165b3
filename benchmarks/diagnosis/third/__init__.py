"""The third fleet: programs of further kinds, frozen before anybody asked steadyrun about them."""
