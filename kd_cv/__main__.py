"""`python -m kd_cv` is `kd-cv`."""

import sys

from kd_cv.cli import main

if __name__ == "__main__":
    sys.exit(main())
