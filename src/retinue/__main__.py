"""`python -m retinue` is the command `retinue`."""

from retinue.cli.main import main

if __name__ == "__main__":
    main()
