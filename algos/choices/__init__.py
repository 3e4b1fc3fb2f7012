"""Learners of stable-baselines3, which pick one of K texts."""
