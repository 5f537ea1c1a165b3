"""The programs of the third fleet, in the form of the second: `train`, `task` and `quality` in one file each."""
