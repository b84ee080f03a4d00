"""Rows and images: the table, its splits and samples, decoded pixels, planted worlds."""
