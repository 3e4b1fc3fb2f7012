"""Learners that compare the completions of a group with each other."""
