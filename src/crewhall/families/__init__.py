"""The families: rooms of tools, each with its model, rules, queries and handlers."""
