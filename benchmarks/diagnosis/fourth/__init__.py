"""The fourth fleet: programs of more kinds, frozen before anybody asked steadyrun about them."""
