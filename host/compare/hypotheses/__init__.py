"""Hypotheses: what another front end may do at one stage, and the search for those that explain a difference."""
