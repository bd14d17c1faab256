"""`mgpu doctor`: examine a machine, report it, and repair what a check can repair."""
