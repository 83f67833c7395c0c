"""Run the notebooks of demos/ and keep their outputs in them, so that a web viewer shows them.

python tools/notebooks.py
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

DEMOS = Path(__file__).parents[1] / "demos"


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of all its cells."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(DEMOS)}})
    done = client.execute()
    for cell in done.cells:
        cell.metadata.pop("execution", None)  # when it ran: of no interest, and never the same
    return done


if __name__ == "__main__":
    for path in sorted(DEMOS.glob("*.ipynb")):
        nbformat.write(run(path), path)
        print(path)
