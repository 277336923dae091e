"""Files as their authors released them."""
