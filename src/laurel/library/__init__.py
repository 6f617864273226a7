"""The public API of `import laurel`: rewards, agents, wrappers, labels and tables, a module each."""
