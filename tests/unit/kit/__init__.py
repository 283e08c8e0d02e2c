"""Tests of the suite itself: its markers, its random orders, its pages."""
