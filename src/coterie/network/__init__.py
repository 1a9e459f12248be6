"""Real peers on a real network: who they are, where they are, what they exchange, and what they refuse."""
