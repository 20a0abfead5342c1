// Nothing: ladders.cpp has what the kernels use of it.
