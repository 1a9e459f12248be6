"""The names of the forms in which an artifact can travel; see `compression`."""

ENCODINGS: tuple[str, ...] = ("none", "zstd", "fp16", "topk")
