"""What went wrong, caught and executed again: capture, replay, hunt, export."""
