"""The live runtime: any policy, driven by the wall clock."""
