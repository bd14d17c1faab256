"""Questions to the user at a terminal. Only this package imports questionary."""
