"""Read and write models in the formats of other libraries."""
