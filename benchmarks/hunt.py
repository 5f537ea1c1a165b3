"""The hunt on planted origins: does it name the right module, and stay silent on innocent programs?

python benchmarks/hunt.py                                  (CPU, float32)
python benchmarks/hunt.py --device cuda --dtype fp16
"""

from __future__ import annotations

import argparse
import sys

from nonfinite import CULPRITS, INNOCENTS, Case, build

from steadyrun.replay.hunt import Culprit, hunt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "fp16", "bf16"))
    parser.add_argument("--only", default="", help="a part of the names of cases")
    arguments = parser.parse_args()
    cases = {name: case for name, case in {**CULPRITS, **INNOCENTS}.items() if arguments.only in name}
    count = right = causes = 0
    for name, case in cases.items():
        found: Culprit | None = None
        try:
            found = hunt(*build(name, arguments.device, arguments.dtype))
        except Exception as raised:  # such as an operation that this device lacks in this dtype
            print(f"n/a {name:28} {type(raised).__name__}: {str(raised)[:90]}")
            continue
        good = is_right(case, found)
        count += 1
        right += good
        causes += good and (found is None or (found.operation, found.cause) == (case.operation, case.cause))
        print(f"{'ok ' if good else 'BAD'} {name:28} expected {wanted(case):80} found {told(found)}")
        if found is not None and arguments.only:
            print(f"      {found.message}\n      {found.fix}")
    print(f"{right} of {count} right in stage and module; {causes} in operation and cause, too")
    return 0 if right == count else 1


def is_right(case: Case, found: Culprit | None) -> bool:
    """Stage and module; in a small dtype a fault may show as another operation of the same module."""
    if found is None or not case.stage:
        return found is None and not case.stage
    return (found.stage, found.module) == (case.stage, case.module)


def wanted(case: Case) -> str:
    return f"{case.stage} {case.module} {case.operation} {case.cause}" if case.stage else "nothing"


def told(found: Culprit | None) -> str:
    if found is None:
        return "nothing"
    return f"{found.stage} {found.module} {found.operation} {found.cause} {found.value} {found.dtype} {found.where}"


if __name__ == "__main__":
    sys.exit(main())
