"""`python -m flashtrie`: the command line."""

from flashtrie.cli.start import main

if __name__ == "__main__":
    main()
