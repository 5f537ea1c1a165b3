"""Job: run jobs in processes of this machine, on a Ray cluster, under Slurm, or in the user's own executor.
May import: errors; ray and submitit when used.
Entry point: `crew.open_crew`.
Output: a `Done` per job as it ends. Jobs and results are JSON.
"""

from steadyrun.workers.crew import Crew, open_crew
from steadyrun.workers.job import Done, Job

__all__ = ["Crew", "Done", "Job", "open_crew"]
