"""What models are trained for: one file for each task, and one table of them all."""
