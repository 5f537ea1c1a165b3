"""The programs of the fourth fleet, in the form of the third: `train`, `task` and `quality` in one file each."""
