"""`python -m elmokit` is the `elmo` command."""

from elmokit.cli.main import run

if __name__ == "__main__":
    run()
