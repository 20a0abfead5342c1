"""Chapter 2 of the study beyond its dataset.csv: the network, its layers, engines and device."""
