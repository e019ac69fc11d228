"""Run the `elmo` command with `python -m elmokit`."""

from elmokit.cli.main import run

if __name__ == "__main__":
    run()
