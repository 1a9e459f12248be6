"""`coterie bench`: measure the engine's speed against a plain PyTorch loop and other frameworks."""
