"""`coterie bench`: how fast the engine is, beside a plain PyTorch loop and beside other frameworks."""
