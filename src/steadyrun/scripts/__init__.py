"""Job: run a training script that was not edited, and record it.
May import: recording, integrations, importers, report, program and below; torch only after the script has imported it.
Entry point: `run_script.run_script`; `notebook_cells` for `%load_ext steadyrun`.
Output: the script's exit code, a run directory, and the report on stderr.
"""
