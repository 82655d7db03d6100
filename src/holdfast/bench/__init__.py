"""`holdfast bench`: how fast Holdfast is on this machine and this store.

Every measurement starts ordinary runs of the workflows in work.py through the public API, and counts only answers that
come after the commit. Nothing in the product knows that it is being measured. Each group of measurements has a file;
plan.py lists the measurements and runs them.
"""
