"""Files: written whole or not at all; images decoded within limits."""
