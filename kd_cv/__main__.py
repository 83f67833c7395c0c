"""`python -m kd_cv` is `kd-cv`."""

import sys

from kd_cv.cli import main

sys.exit(main())
