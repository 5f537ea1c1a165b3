"""The post-mortem of an incident: seven sections, written from what was recorded and proved; and its verification."""
