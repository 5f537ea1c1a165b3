"""python -m diagnosis.third.quality, from benchmarks/: how good every model of the third fleet is, as the second's."""

from diagnosis.second.quality import Source, main
from diagnosis.third.cases import cases, twin

if __name__ == "__main__":
    main(Source("third", cases, twin, seeds=2))
