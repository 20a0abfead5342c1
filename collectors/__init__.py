"""Run where the GPU is: start profilers on workloads and keep their raw exports, uninterpreted."""
