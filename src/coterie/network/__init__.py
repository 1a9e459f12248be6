"""Real peers on a network: identity, membership, exchange of artifacts, and protection against misbehaving peers."""

import os

# Set before gRPC is imported: it would log every connection that another peer closes.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
