"""Are the nodes alike, all there, and able to reach each other?"""
