"""Real peers on a real network: who they are, where they are, what they exchange, and what they refuse."""

import os

# Before gRPC is imported: it would tell the terminal of every connection that another peer closed.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
