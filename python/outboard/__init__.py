"""Outboard for Python programs: `import outboard.torch` registers its back end with PyTorch."""
