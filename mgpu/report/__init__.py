"""How results are shown: on a screen, as JSON and as the formats of other tools."""
