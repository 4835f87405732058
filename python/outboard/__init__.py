"""Outboard for Python programs; `import outboard.torch` registers its torch.distributed back end."""
