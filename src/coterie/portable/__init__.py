"""Models that anybody can run: ONNX, whatever made them, run in a process of its own and never by the sender's code."""
