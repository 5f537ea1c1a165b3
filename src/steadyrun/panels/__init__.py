"""The seven panels: view models made from signals and a report, and the ways they are drawn."""
