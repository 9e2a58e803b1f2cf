"""The best stages of a pipeline by the prices of its layers."""
