"""Start the command line of the experiments: ``python -m experiments``."""

from experiments.commands import app

if __name__ == "__main__":
    app(prog_name="python -m experiments")
