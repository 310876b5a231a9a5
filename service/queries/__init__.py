"""Queries: what other threads ask of the loop or want of it, and what it answers, as values.

A noun is a file: its questions, their answers, and how the answers of several loops become one.
"""
