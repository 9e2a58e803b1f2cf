"""The version of shardc."""

VERSION = "0.1.0"
