"""Mutation sampling: does a test fail if the code is wrong?"""
