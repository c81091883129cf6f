"""The command line `headrace`, with one module or folder for each command."""
