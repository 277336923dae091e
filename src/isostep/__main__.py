"""`python -m isostep` is the command `isostep`."""

from isostep.cli import main

if __name__ == "__main__":
    main()
