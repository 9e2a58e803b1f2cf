"""The report: one self-contained HTML file. Its libraries are loaded on demand."""
