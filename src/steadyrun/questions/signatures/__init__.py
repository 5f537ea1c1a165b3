"""The questions S…: what one sees on the seven panels, where neither tree found a fault."""
