"""Sandbox side: the zygote and what it forks. Runs as `python -I -m qjs_pool.worker`.

Imports only the standard library, quickjs, tree_sitter, msgspec, zstandard, cloudpickle and
`qjs_pool.wire`; nothing of the host side is ever loaded into a process that runs guest code.
"""
