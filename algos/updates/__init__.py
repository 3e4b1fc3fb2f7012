"""From completions with advantages to an optimizer step."""
