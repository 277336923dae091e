"""What is generated: graphs and molecules."""
