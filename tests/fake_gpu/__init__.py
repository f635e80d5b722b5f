"""GPUs that only pretend: NumPy works off the queues of streams in an adversarial order that the events allow."""
