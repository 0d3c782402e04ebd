"""Stores: implementations of the tape store port."""
