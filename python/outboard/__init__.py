"""Outboard for Python programs. `import outboard.torch` makes its back end of torch.distributed known."""
