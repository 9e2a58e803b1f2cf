"""Facts about a program; analyses read the module and never rewrite it."""
