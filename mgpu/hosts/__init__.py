"""Machines that are reached with ssh: their names, the connection, and what travels over it."""
