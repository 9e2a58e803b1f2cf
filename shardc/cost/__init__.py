"""The cost model; docs/costs.md is its description on one page."""
