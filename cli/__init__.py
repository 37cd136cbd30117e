"""The command line: one file per verb that parses, calls the library and prints."""
