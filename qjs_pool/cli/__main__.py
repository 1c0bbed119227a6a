"""`python -m qjs_pool.cli`."""

from . import main

if __name__ == "__main__":
    main()
