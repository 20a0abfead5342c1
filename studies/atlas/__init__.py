"""The atlas: layers of many networks, how they were recorded and what they say about metrics."""
