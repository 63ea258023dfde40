"""Other people's formats: what of heedful's models fits into them exactly, and the way there."""
