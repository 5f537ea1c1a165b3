"""The fifth fleet: post-training and objectives whose loss need not fall, with a half that is frozen."""
