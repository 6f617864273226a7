"""`python -m laurel` is the `laurel` command."""

from laurel.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
