"""Module in, module out: one rewrite per file; `pipeline` alone knows their order."""
