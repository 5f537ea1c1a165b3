"""Programs with nothing wrong in them, some of which look alarming. What is declared is what happens."""
