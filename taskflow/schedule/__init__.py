"""Orders: which row of a task graph is issued before which."""
