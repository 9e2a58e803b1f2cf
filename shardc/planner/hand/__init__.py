"""Hand-written pipelines: shardc follows the spec and plans the rest."""
