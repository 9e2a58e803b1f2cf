"""Facts about a program. An analysis reads the module and never rewrites it."""
