"""What only packages need: isolated builds, metadata, and tags."""
