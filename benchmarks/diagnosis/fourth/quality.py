"""python -m diagnosis.fourth.quality, from benchmarks/: how good every model of the fourth fleet is."""

from diagnosis.fourth.cases import cases, twin
from diagnosis.second.quality import Source, main

if __name__ == "__main__":
    main(Source("fourth", cases, twin, seeds=2))
