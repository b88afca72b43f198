"""End-to-end machine-learning pipelines, measured as they are, alone and side by side."""
