"""Portable models: ONNX from any source, run in a separate process, never with the sender's code."""
