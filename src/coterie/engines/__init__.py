"""Code shared by the simulation and the network engine: driving a method, shelves, measuring."""
