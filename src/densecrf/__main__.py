"""``python -m densecrf`` is the command line."""

from densecrf.cli import main

if __name__ == "__main__":
    main()
