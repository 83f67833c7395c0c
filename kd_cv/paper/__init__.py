"""The paper's figures and numbers."""
