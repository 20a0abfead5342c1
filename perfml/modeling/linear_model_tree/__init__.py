"""A decision tree with a linear model in every leaf, split exactly.

Here to change: parameters in ``regressor.py``, where a node splits in ``split.py``,
when a split stays in ``grow.py``, the algebra of a leaf in ``gram.py``.
"""

from perfml.modeling.linear_model_tree.regressor import LinearModelTreeRegressor

__all__ = ["LinearModelTreeRegressor"]
