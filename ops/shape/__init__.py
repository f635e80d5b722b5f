"""What changes shapes and leaves values as they are."""
