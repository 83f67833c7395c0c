"""All checks in an interpreter that cannot import a given module.

python -m ways_in --without numba --save rows.npz        in tests/contract
"""

import argparse
import sys
import warnings

import numpy as np

from ways_in import CHECKS, ENTRIES
from ways_in.absent import Absent
from ways_in.entry import photographs


def main() -> None:
    """Every check on every entry that is there; exit code 1 if one fails."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--without", action="append", default=[], help="a module, as if not there")
    parser.add_argument("--check", help="only this one")
    parser.add_argument("--save", help=".npz for the rows of each entry")
    options = parser.parse_args()
    for name in options.without:
        assert name not in sys.modules
        sys.meta_path.insert(0, Absent(name))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from kd_cv.descriptor.describer import load_compiled

        load_compiled()
    for warning in caught:
        print("warning:", warning.message)
    saved, failures = {}, 0
    for entry in ENTRIES:
        if set(entry.needs) & set(options.without) or not entry.available():
            print(f"{entry.name}: not there")
            continue
        for check in CHECKS:
            if options.check not in (None, check.__name__):
                continue
            try:
                check(entry)
            except AssertionError as error:
                failures += 1
                print(f"{entry.name}: {check.__name__} failed: {error}")
        rows = entry.rows(entry.call(*entry.arguments(photographs(entry.side))))
        saved |= {f"{entry.name} {i}": row for i, row in enumerate(rows)}
        print(f"{entry.name}: ok")
    for name in options.without:
        assert not [m for m in sys.modules if m.partition(".")[0] == name], name
    if options.save:
        np.savez(options.save, **saved)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
