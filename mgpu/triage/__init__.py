"""Why did a run fail? Logs read as a stream into the fact `log`, and the first cause chosen among what they tell."""
