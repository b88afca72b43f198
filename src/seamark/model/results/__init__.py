"""What the JSON documents of the results hold. A key that is Required is in every version; others may be lacking."""

from seamark.model.results.known import OTHERWISE, REMEDIES, SHAPES
from seamark.model.results.study import Environment

__all__ = ["OTHERWISE", "REMEDIES", "SHAPES", "Environment"]
