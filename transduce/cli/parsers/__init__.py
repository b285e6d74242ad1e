"""The options of each command, in one file for each topic. Imports nothing heavy: the commands themselves are beside this package."""
