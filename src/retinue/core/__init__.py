"""The vocabulary of Retinue: frozen values on the standard library alone."""
