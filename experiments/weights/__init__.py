"""Building of the shipped matrices."""
