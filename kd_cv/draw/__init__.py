"""Pictures: plots that compose, and the page of a match."""
