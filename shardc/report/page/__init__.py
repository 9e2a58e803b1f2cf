"""The report: one HTML file that needs no network. Its libraries are loaded when one is made."""
