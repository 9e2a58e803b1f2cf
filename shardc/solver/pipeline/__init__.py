"""Clusters ops into layers, and layers into stages."""
