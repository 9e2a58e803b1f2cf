"""One verifier per form of the module, run between passes."""
