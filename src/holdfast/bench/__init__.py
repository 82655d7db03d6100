"""`holdfast bench`: how fast Holdfast is on this machine and this store.

Every measurement starts ordinary runs of the workflows in work.py through the public API, and counts only what was
answered after its commit. Nothing in the product knows that it is being measured. One file per group of measurements;
plan.py lists them and runs them.
"""
