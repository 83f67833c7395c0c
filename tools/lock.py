"""Write tools/dev.lock: every package of the development set, by version and hash.

    pip install uv && python tools/lock.py [--upgrade]

Without --upgrade the versions of the present lock are kept where they still fit. torch and what
its CUDA build brings are left out: the Makefile pins torch, and each machine takes its own build.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "tools" / "dev.lock"
PYTHON = "3.11.2"  # of Debian 12: versions that need a newer one are not taken
PLATFORM = "x86_64-unknown-linux-gnu"
OF_TORCH = re.compile(r"(torch|triton|nvidia-|cuda-)")


def main() -> None:
    if "--upgrade" in sys.argv:
        LOCK.unlink(missing_ok=True)
    command = (
        "uv pip compile pyproject.toml --extra dev --generate-hashes --quiet --no-annotate "
        f"--no-header --python-version {PYTHON} --python-platform {PLATFORM} -o {LOCK}"
    )
    subprocess.run(command.split(), cwd=ROOT, check=True)
    # A package begins in the first column, and its hashes follow.
    packages = re.split(r"^(?=\S)", LOCK.read_text(), flags=re.MULTILINE)
    LOCK.write_text("".join(p for p in packages if not OF_TORCH.match(p)))


if __name__ == "__main__":
    main()
