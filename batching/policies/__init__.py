"""The scheduling policies, one file each.

The package `shared` has the mechanisms that several policies use.
"""
