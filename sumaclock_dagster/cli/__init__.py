"""The command line: thin translations of core functions."""
