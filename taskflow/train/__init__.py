"""Training: epochs, batches, learning rates and a report of what ran, on top of `Executor`."""
