"""Questions to a person at a terminal. Only this package imports questionary."""
