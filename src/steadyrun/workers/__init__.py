"""Job: jobs done elsewhere: in processes of this machine, on a Ray cluster, under Slurm, in an executor of the user.
May import: errors; ray and submitit when used.
Entry point: `crew.open_crew`.
Output: a `Done` per job, as they end. Only JSON goes to a worker and comes back.
"""

from steadyrun.workers.crew import Crew, open_crew
from steadyrun.workers.job import Done, Job

__all__ = ["Crew", "Done", "Job", "open_crew"]
