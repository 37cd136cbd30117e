"""`python -m flashtrie`: the command line."""

from flashtrie.cli.main import app

if __name__ == "__main__":
    app(prog_name="trie")
