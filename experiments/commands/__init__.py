"""The commands of `python -m experiments` that measure descriptors and draw the paper's figures."""
