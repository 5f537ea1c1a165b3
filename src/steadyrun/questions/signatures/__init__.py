"""The questions S…: signatures on the seven panels, asked if neither tree found a fault."""
