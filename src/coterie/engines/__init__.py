"""What the simulation and the network engine have in common: driving a method, shelves, measuring."""
