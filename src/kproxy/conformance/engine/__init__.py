"""Engine: runs cases on testbeds and judges the observations."""
