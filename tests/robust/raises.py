"""List the `raise` statements of kd_cv that no test reached: run by `make coverage`.

    python tests/robust/raises.py

Reads the combined .coverage file of the current folder. Ends with 1 if there are any.
"""

import ast
from pathlib import Path

import coverage


def raises(path: Path) -> list[int]:
    """The lines of all raise statements in a file, but those that pass on a caught error."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]


def unreached(cov: coverage.Coverage, path: Path) -> list[int]:
    _, _, excluded, missing, _ = cov.analysis2(str(path))
    return sorted(set(raises(path)) & set(missing) - set(excluded))


if __name__ == "__main__":
    cov = coverage.Coverage()
    cov.load()
    paths = sorted(Path("kd_cv").rglob("*.py"))
    total, missed = sum(len(raises(path)) for path in paths), 0
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number in unreached(cov, path):
            missed += 1
            print(f"{path}:{number}: {lines[number - 1].strip()}")
    print(f"{total - missed} of {total} raise statements are reached by a test")
    raise SystemExit(missed > 0)
