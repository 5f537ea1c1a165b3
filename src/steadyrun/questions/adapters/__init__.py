"""Adapters (LoRA and its relatives): whether they train, start at zero and leave the base alone."""
