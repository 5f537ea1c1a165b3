"""The questions A…: audits of the training loop, which prove a cause. They are also asked after a fault."""
