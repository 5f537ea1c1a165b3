"""python -m diagnosis.fifth.quality, from benchmarks/: how good every post-training model of the fifth fleet is."""

from diagnosis.cases import Case, cases_of
from diagnosis.fifth.cases import twin
from diagnosis.fifth.post_training import HEALTHY, TWINS_OF
from diagnosis.second.quality import Source, main


def cases(seeds: int = 1, only: str = "*") -> list[Case]:
    """The cases of this part alone: the other one has a script of its own."""
    return cases_of("fifth", TWINS_OF, HEALTHY, seeds, only)


if __name__ == "__main__":
    main(Source("fifth", cases, twin, seeds=1))
