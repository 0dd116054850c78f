"""The pictures, and the ratios that they and the tables of the documents show."""
