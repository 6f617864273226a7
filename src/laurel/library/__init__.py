"""What `import laurel` offers: rewards, agents, wrappers, labels and tables, one noun a module."""
