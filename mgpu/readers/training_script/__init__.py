"""A training script as the fact `script`: what it imports, calls and guards by rank."""
