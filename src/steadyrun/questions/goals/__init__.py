"""Preference tuning and reinforcement learning: numbers that decide beside the loss."""
