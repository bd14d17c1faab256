"""Check and compare many machines, and name the bad ones."""
