"""The program `heedful`: one module for each command, and what the commands share; `main.COMMANDS` lists them."""
