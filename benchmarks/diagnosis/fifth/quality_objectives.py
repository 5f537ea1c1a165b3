"""python -m diagnosis.fifth.quality_objectives, from benchmarks/: how good every model with another objective is."""

from pathlib import Path

from diagnosis.fifth.objectives import FILE, cases, twin
from diagnosis.second import quality


class Source(quality.Source):
    """This part of the fleet keeps its numbers in files of its own."""

    @property
    def damage(self) -> Path:
        return FILE

    @property
    def kept(self) -> Path:
        return super().kept.with_name("quality_objectives.json")


if __name__ == "__main__":
    quality.main(Source("fifth", cases, twin, seeds=1))
