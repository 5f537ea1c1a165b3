"""How often steadyrun is right: real programs with one real bug each, healthy ones, and other tools on the same."""
