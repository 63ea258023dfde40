"""Programs for people who work on heedful itself; no part of the installed package."""
