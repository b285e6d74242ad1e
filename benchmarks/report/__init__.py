"""docs/results.md and the generated parts of the README: one module for each section, with its rows beside the result files they read."""
