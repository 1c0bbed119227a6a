"""Entry point of the zygote process: `python -I -m qjs_pool.worker FD`."""

import sys

from .zygote import main

main(int(sys.argv[1]))
