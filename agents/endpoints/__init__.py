"""What asking an OpenAI-compatible endpoint takes: limits, budgets, retries, conversations."""
