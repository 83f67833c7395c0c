"""Pictures: plots on Matplotlib axes that compose, and the sheet of matches."""
