"""The fifth fleet: other objectives and post-training, frozen before anybody asked steadyrun about them."""
