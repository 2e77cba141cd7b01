"""Binding: from a case in names to objects, packets and outcomes in addresses. Pure."""
