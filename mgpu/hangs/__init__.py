"""Why does a run make no progress? Asks its ranks what they do, twice, and lets the checks compare."""
