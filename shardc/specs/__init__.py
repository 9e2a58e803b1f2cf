"""One verifier per form of the module: what docs/ir.md promises, checked between passes."""
